"""Errors: which class belongs to which code, and what of them survives pickling."""

import copy
import pickle
import unittest

import grpc
import semaphored
from semaphored._wording import in_options
from semaphored.errors import Loss, LossCause, LostError, make_error


def all_classes(kind):
    return [kind, *(each for sub in kind.__subclasses__() for each in all_classes(sub))]


def examples():
    """One of each class."""
    for kind in dict.fromkeys(all_classes(semaphored.Error)):
        if kind is LostError:
            yield LostError(Loss(LossCause.RECALLED, "its grace has passed"))
        else:
            yield kind(grpc.StatusCode.ABORTED, "a message", "A_REASON", {"semaphore": "team/db"})


class Errors(unittest.TestCase):

    def test_each_survives_pickling_and_copying(self):
        classes = {type(error) for error in examples()}
        exported = {each for each in vars(semaphored).values()
                    if isinstance(each, type) and issubclass(each, semaphored.Error)}
        self.assertLessEqual(exported, classes)
        for error in examples():
            error.noted = "by the program"
            ways = [copy.copy, copy.deepcopy]
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
                ways.append(lambda each, to=protocol: pickle.loads(pickle.dumps(each, to)))
            for again in (way(error) for way in ways):
                self.assertIs(type(again), type(error))
                self.assertEqual((str(again), repr(again), again.args, vars(again)),
                                 (str(error), repr(error), error.args, vars(error)))

    def test_those_that_are_also_errors_of_python(self):
        expired = make_error(grpc.StatusCode.DEADLINE_EXCEEDED, "too late", "WAIT_EXPIRED")
        self.assertIsInstance(expired, semaphored.WaitExpired)
        self.assertIsInstance(expired, TimeoutError)
        self.assertEqual((str(expired), expired.errno), ("WAIT_EXPIRED: too late", None))
        self.assertNotIsInstance(make_error(grpc.StatusCode.DEADLINE_EXCEEDED, "late"), TimeoutError)
        self.assertIsInstance(make_error(grpc.StatusCode.INVALID_ARGUMENT, "no"), ValueError)


class WordingTest(unittest.TestCase):

    def test_errors_speak_of_the_options_of_the_package(self):
        for said, shown in (
                ("open.ttl_ms: must be 1000 to 86400000, not 5",
                 "ttl: must be 1 s to 86400 s, not 0.005 s"),
                ("my_wait_ms: its limit is 3; see limit_mismatch",
                 "my_wait_ms: its limit is 3; see adopt_limit"),
                ("wait_ms: must be 0 to 5; see wait_forever", "wait: must be 0 s to 0.005 s; see wait"),
                ("permits: must be 1 to 7, not 9", "permits: must be 1 to 7, not 9"),
                ("create.settings.longest_hold_ms: must be 1 to 7",
                 "create.settings.longest_hold_ms: must be 1 to 7"),
                ("wait (wait_ms), or try again later", "wait (wait), or try again later"),
                ("nothing of all this.", "nothing of all this."), ("", "")):
            self.assertEqual(in_options(said, "my_wait_ms"), shown)
        self.assertEqual(in_options("ttl_ms: x: must be", "ttl_ms"), "ttl_ms: x: must be")


if __name__ == "__main__":
    unittest.main()
