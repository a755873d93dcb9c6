// semaphored's client for Node. What is exported here is described in index.d.ts.
'use strict';

const { Client } = require('./lib/client.js');
const errors = require('./lib/errors.js');
const { Permit } = require('./lib/permit.js');

exports.Client = Client;
exports.Permit = Permit;
exports.SemaphoreError = errors.SemaphoreError;
exports.CancelledError = errors.CancelledError;
exports.InvalidArgumentError = errors.InvalidArgumentError;
exports.DeadlineExceededError = errors.DeadlineExceededError;
exports.NotFoundError = errors.NotFoundError;
exports.AlreadyExistsError = errors.AlreadyExistsError;
exports.PermissionDeniedError = errors.PermissionDeniedError;
exports.ResourceExhaustedError = errors.ResourceExhaustedError;
exports.FailedPreconditionError = errors.FailedPreconditionError;
exports.AbortedError = errors.AbortedError;
exports.UnimplementedError = errors.UnimplementedError;
exports.InternalError = errors.InternalError;
exports.UnavailableError = errors.UnavailableError;
exports.UnauthenticatedError = errors.UnauthenticatedError;
exports.PermitLostError = errors.PermitLostError;
