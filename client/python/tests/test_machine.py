"""What only this client has of a session's rules. What all clients share is in the traces of
tests/conformance."""

import unittest

from semaphored.errors import (Full, LossCause, LostError, NotFoundError, ResourceExhaustedError,
                               Unreachable, WaitExpired)
from semaphored.v1 import semaphore_pb2 as pb

from test_conformance import play, read


def after(prologue, *steps):
    return play({"after": prologue, "steps": list(steps)}, read("basis.json"))


def refused(code, reason):
    """The error of an acquire that the daemon refuses so."""
    error = {"code": code, "details": [
        {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}]}
    return after("asked", {"message": {"results": [{"sequence": "1", "error": error}]},
                           "reports": [{"refused": "a"}]}).errors["a"]


class Machine(unittest.TestCase):

    def test_errors_have_the_class_of_their_code_and_reason(self):
        for code, reason, kind in ((8, "FULL", Full), (8, "LIMIT_REACHED", ResourceExhaustedError),
                                   (4, "WAIT_EXPIRED", WaitExpired),
                                   (5, "NO_SUCH_SEMAPHORE", NotFoundError)):
            self.assertIs(type(refused(code, reason)), kind)

    def test_unreachable_says_what_the_last_endpoint_said(self):
        run = after("asked")
        run.end({"code": "UNAVAILABLE", "message": "the stream broke"})
        run.advance_ms(60_000)
        run.settle()
        self.assertIs(type(run.errors["a"]), Unreachable)
        self.assertIn("; the last one said: ", run.errors["a"].message)

    def test_close_loses_the_permits_before_the_daemon_is_asked_to_free_them(self):
        run = after("holding")
        run.close(True)
        self.assertEqual(run.calls["a"][1].loss.cause, LossCause.CLOSED)
        run.settle()
        self.assertEqual(run.wire, [{"close": True}])
        run.release({"call": "r", "lease": "a"})
        run.settle()
        self.assertIsInstance(run.errors["r"], LostError)

    def test_a_release_of_a_permit_that_the_daemon_has_ended_says_why(self):
        run = after("holding")
        run.release({"call": "r", "lease": "a"})
        run.settle()
        run.message({"results": [{"sequence": "2", "released": {"ended": "END_CAUSE_RELEASED"}}]})
        run.settle()
        self.assertEqual(run.errors["r"].loss.cause, LossCause.REVOKED)

    def test_many_short_waits_leave_nothing_behind(self):
        run = after("holding")
        for number in range(2, 1_002):
            run.acquire({"call": "b", "wait_ms": 1_000_000})
            run.settle()
            run.machine.on_message(pb.SessionResponse(results=[pb.SessionResult(
                sequence=number, granted=pb.Lease(lease_id=f"L{number}"))]), run.now_ns)
            run.settle()
        self.assertLess(len(run.machine._operations._local_ends), 100)


if __name__ == "__main__":
    unittest.main()
