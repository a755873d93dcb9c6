// A lease as its Permit has it: with what the application wants to hear of it.
'use strict';

const { PermitLostError } = require('./errors.js');
const { LeaseState } = require('./lease_state.js');

class HeldLease extends LeaseState {
  abort = new AbortController();
  recall; // The last notice.
  #acknowledge;
  #acknowledgement;
  #lossCallbacks = [];
  #recallCallbacks = [];

  // `acknowledge`: takes what tellRecall() was given, when the application knows of the recall.
  constructor(fields, acknowledge) {
    super(fields);
    this.#acknowledge = acknowledge;
  }

  // Aborts the signal and runs the callbacks. To be called once.
  tellLoss(loss) {
    this.adoptLoss(loss);
    this.abort.abort(new PermitLostError(this.loss));
    const callbacks = this.#lossCallbacks;
    this.#lossCallbacks = undefined;
    for (const callback of callbacks) runApart(() => callback(this.loss));
  }

  // Runs `callback` at once if the loss was reported already.
  onLost(callback) {
    if (this.#lossCallbacks === undefined) runApart(() => callback(this.loss));
    else this.#lossCallbacks.push(callback);
  }

  // `acknowledgement` undefined: the recall cannot be acknowledged.
  tellRecall(notice, acknowledgement) {
    this.recall = notice;
    this.#acknowledgement = acknowledgement;
    for (const callback of this.#recallCallbacks) this.#runRecall(callback);
  }

  // With each notice; at once if there has been one.
  onRecall(callback) {
    this.#recallCallbacks.push(callback);
    if (this.recall !== undefined) this.#runRecall(callback);
  }

  // The first callback that returns acknowledges the recall; one that throws has not.
  #runRecall(callback) {
    const notice = this.recall;
    const acknowledgement = this.#acknowledgement;
    runApart(() => {
      callback(notice);
      if (acknowledgement === undefined || this.#acknowledgement !== acknowledgement) return;
      this.#acknowledgement = undefined;
      this.#acknowledge(acknowledgement);
    });
  }
}

// A callback that throws is its owner's affair (an uncaught exception), and stops nothing here.
function runApart(callback) {
  queueMicrotask(callback);
}

module.exports = { HeldLease };
