"""The acts of the page, in a real browser. Whether an act was done is asked of the daemon, not of the page."""

import json
import os
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import grpc  # noqa: E402

from page_case import PageCase  # noqa: E402
from scenery import BOUND_S, TTL_MS, Client, Worker, access_file, pb, wait_until  # noqa: E402

class ActsTest(PageCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="semaphored-page-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.audit = os.path.join(cls.folder, "audit.log")
        cls.SETTINGS = {"audit_file": cls.audit}
        super().setUpClass()

    def audited(self, semaphore):
        """The acts at this semaphore, in order, and what became of them."""
        with open(self.audit, encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        return [(line["act"], line["outcome"]) for line in lines if line["semaphore"] == semaphore]

    def confirm(self, report):
        """The dialog's one confirmation; then the report has this text."""
        self.browser.js("document.querySelector('#toasts').replaceChildren()")
        self.browser.click("#confirm")
        self.browser.wait(lambda: self.browser.js("return !document.querySelector('dialog').open"),
                          lambda: f"the act is done; the dialog says {self.browser.text('dialog [role=alert]')!r}")
        self.browser.wait_text("#toasts", report)

    def undo(self, report):
        self.browser.click("#toasts .toast:last-child button.plain")
        self.browser.wait_text("#toasts", report)

    def make(self, name, limit, holders=()):
        self.client.administer(name, create=pb.CreateSemaphore(limit=limit))
        leases = [self.client.acquire(name, ttl_ms=TTL_MS, holder=holder) for holder in holders]
        self.open_semaphore(name)
        return leases

    def test_resize_and_its_undo(self):
        self.make("resize/up", 2)
        self.browser.click("#act-resize")
        self.assertEqual(self.browser.js("return document.activeElement.id"), "limit")
        self.browser.type("#limit", "5")
        self.confirm("The limit of resize/up is 5; it was 2.")
        self.assertEqual(self.client.describe("resize/up").limit, 5)
        # Focus goes back to where it was.
        self.assertEqual(self.browser.js("return document.activeElement.id"), "act-resize")
        self.undo("The limit of resize/up is 2 again.")
        self.assertEqual(self.client.describe("resize/up").limit, 2)
        self.assertEqual(self.audited("resize/up"), [("create", "OK"), ("resize", "OK"), ("resize", "OK")])

    def test_an_undo_leaves_alone_what_was_set_since(self):
        self.make("resize/since", 2)
        self.browser.click("#act-resize")
        self.browser.type("#limit", "5")
        self.confirm("The limit of resize/since is 5")
        self.client.administer("resize/since", resize=pb.ResizeSemaphore(limit=9))
        self.undo("Not undone: the limit has been set to 9 since.")
        self.assertEqual(self.client.describe("resize/since").limit, 9)

    def test_an_undo_sees_a_change_that_comes_between_its_look_and_its_act(self):
        self.make("resize/between", 2)
        self.browser.click("#act-resize")
        self.browser.type("#limit", "5")
        self.confirm("The limit of resize/between is 5")
        # Before the undo's act arrives, another one sets the limit.
        self.browser.js("""
            const real = window.fetch;
            let between = 0;
            window.fetch = async (url, options) => {
              const asked = options?.body ? JSON.parse(options.body) : {};
              if (asked.resize && !between++)
                await real(url, {...options, body: JSON.stringify({semaphore: asked.semaphore, resize: {limit: 9}})});
              return real(url, options);
            };""")
        self.undo("Not undone: the limit has been set to 9 since.")
        self.assertEqual(self.client.describe("resize/between").limit, 9)

    def test_an_undo_is_done_beside_grants(self):
        self.make("resize/grants", 2)
        self.browser.click("#act-resize")
        self.browser.type("#limit", "5")
        self.confirm("The limit of resize/grants is 5")
        self.browser.js("""
            const real = window.fetch;
            let between = 0;
            window.fetch = async (url, options) => {
              const asked = options?.body ? JSON.parse(options.body) : {};
              if (asked.resize && !between++)
                await real(url.replace("Administer", "Acquire"), {...options, body: JSON.stringify({semaphore: asked.semaphore})});
              return real(url, options);
            };""")
        self.undo("The limit of resize/grants is 2 again.")
        self.assertEqual(self.client.describe("resize/grants").limit, 2)
        self.assertEqual(self.client.describe("resize/grants").held, 1)

    def test_an_undo_sets_what_was_in_force_at_the_confirmation(self):
        self.make("resize/open", 2)
        self.browser.click("#still")  # Else the page might show the change behind the dialog.
        self.browser.click("#act-resize")
        self.browser.type("#limit", "5")
        self.client.administer("resize/open", resize=pb.ResizeSemaphore(limit=9))
        self.confirm("The limit of resize/open is 5; it was 9.")
        self.undo("The limit of resize/open is 9 again.")
        self.assertEqual(self.client.describe("resize/open").limit, 9)

    def test_resize_shows_first_what_it_would_recall(self):
        leases = self.make("resize/recall", 4, ["a", "b", "c", "d"])
        self.browser.click("#act-resize")
        self.browser.type("#limit", "2")
        self.browser.wait_text("#preview", "2 permits would be held above the limit.")
        self.browser.click("input[value=SHRINK_POLICY_RECALL]")
        self.browser.wait_text("#preview", "2 leases would be recalled:")
        shown = self.browser.texts("#preview li")
        self.browser.type("#grace", "60")
        self.confirm("2 leases recalled")
        rows = self.client.describe_rows("resize/recall").leases
        recalled = {row.lease.holder for row in rows if row.recalled}
        self.assertEqual(recalled, {"c", "d"})
        self.assertEqual({line.split(" ")[0] for line in shown}, recalled)
        self.assertEqual(self.client.describe("resize/recall").limit, 2)
        self.assertTrue(self.client.verify(leases[0].lease_id).held)

    def test_resize_may_hold_only_for_what_was_shown(self):
        self.make("resize/exact", 3, ["a", "b", "c"])
        self.browser.click("#still")  # Else the page might show the pause before the confirmation.
        self.browser.click("#act-resize")
        self.browser.type("#limit", "1")
        self.browser.click("input[value=SHRINK_POLICY_RECALL]")
        self.browser.wait_text("#preview", "2 leases would be recalled:")
        self.browser.click("#exact")
        self.client.administer("resize/exact", pause=pb.PauseSemaphore())
        self.browser.click("#confirm")
        self.browser.wait_text("dialog [role=alert]", "revision")
        self.assertEqual(self.client.describe("resize/exact").limit, 3)
        self.browser.press("\ue00c")
        self.browser.wait(lambda: not self.browser.js("return document.querySelector('dialog').open"), "Escape closes it")

    def test_a_refused_resize_says_so(self):
        self.make("resize/refuse", 2, ["a", "b"])
        self.browser.click("#act-resize")
        self.browser.type("#limit", "1")
        self.browser.click("input[value=SHRINK_POLICY_REFUSE]")
        self.browser.click("#confirm")
        self.browser.wait_text("dialog [role=alert]", "more permits are held than the new limit")
        self.assertEqual(self.client.describe("resize/refuse").limit, 2)

    def test_pause_resume_and_drain(self):
        self.make("gate", 2, ["a"])
        self.browser.click("#act-pause")
        self.confirm("gate is paused.")
        self.assertTrue(self.client.describe("gate").paused)
        self.undo("gate is resumed.")
        self.assertFalse(self.client.describe("gate").paused)
        self.browser.click("#act-drain")
        self.confirm("gate is paused: 1 permit still held.")
        self.assertTrue(self.client.describe("gate").paused)
        self.undo("gate is resumed.")
        self.assertFalse(self.client.describe("gate").paused)
        self.client.administer("gate", pause=pb.PauseSemaphore())
        self.browser.click("#act-resume")
        self.confirm("gate is resumed.")
        self.assertFalse(self.client.describe("gate").paused)
        self.undo("gate is paused.")
        self.assertTrue(self.client.describe("gate").paused)
        self.assertEqual([act for act, _ in self.audited("gate")],
                         ["create", "pause", "resume", "drain", "resume", "pause", "resume", "pause"])

    def test_nothing_is_done_without_the_confirmation(self):
        self.make("calm", 2)
        before = self.client.describe("calm").revision
        self.browser.click("#act-pause")
        self.browser.click("dialog footer button[type=button]")
        self.browser.click("#act-resize")
        self.browser.press("\ue00c")
        self.assertEqual(self.client.describe("calm").revision, before)

    def test_revoke_one_of_a_holder_and_all(self):
        leases = self.make("revoke", 5, ["a", "b", "b", "c", "c"])
        revoke = "table[aria-label=Leases] tbody tr:first-child button.revoke"
        self.browser.click(revoke)
        self.browser.click("#now")
        self.browser.find("dialog .danger-note")
        self.confirm("1 lease of revoke ended.")
        self.assertEqual(self.client.verify(leases[0].lease_id).ended, pb.END_CAUSE_REVOKED)
        self.assertTrue(self.client.verify(leases[1].lease_id).held)
        self.browser.wait(lambda: len(self.browser.texts("table[aria-label=Leases] tbody tr")) == 4, "it is gone")
        self.browser.click(revoke)
        self.browser.click("#of-holder")
        self.confirm("2 leases of revoke recalled.")
        rows = {row.lease.lease_id: row.recalled for row in self.client.describe_rows("revoke").leases}
        self.assertEqual([rows[lease.lease_id] for lease in leases[1:]], [True, True, False, False])
        self.browser.click("#act-revoke")
        self.browser.click("#now")
        self.confirm("4 leases of revoke ended.")
        self.assertEqual(self.client.describe("revoke").held, 0)
        self.assertEqual(self.audited("revoke"), [("create", "OK")] + 3 * [("revoke", "OK")])
        # What cannot be undone offers nothing.
        self.assertEqual(self.browser.texts("#toasts button"), ["✕"])

    def test_requeue_and_purge(self):
        worker = Worker(self.client, "letters")
        for _ in range(4):
            self.client.stub.Enqueue(pb.EnqueueRequest(semaphore="letters", limit=1, payload=b"x"))
            worker.reject(worker.next(), "no")
        worker.close()
        self.open_semaphore("letters")
        self.browser.js("const s = document.querySelector('select'); s.value = '4'; s.dispatchEvent(new Event('change'))")
        first = "table[aria-label=Tickets] tbody tr:first-child"
        self.browser.click(f"{first} button.requeue")
        self.confirm("1 dead letter of letters requeued.")
        counts = self.client.describe("letters").tickets
        self.assertEqual((counts.queued, counts.dead), (1, 3))
        self.browser.wait(lambda: len(self.browser.texts("table[aria-label=Tickets] tbody tr")) == 3, "it is not among them")
        self.browser.js("document.querySelector('#toasts').replaceChildren()")
        self.browser.click(f"{first} button.purge")
        self.confirm("1 dead letter of letters purged.")
        self.assertEqual(self.client.describe("letters").tickets.dead, 2)
        self.browser.js("document.querySelector('#toasts').replaceChildren()")
        self.browser.click("#act-requeue")
        self.confirm("2 dead letters of letters requeued.")
        counts = self.client.describe("letters").tickets
        self.assertEqual((counts.queued, counts.dead), (3, 0))
        self.assertEqual(self.browser.texts("#toasts button"), ["✕"])

    def test_purge_all(self):
        worker = Worker(self.client, "refuse")
        for _ in range(3):
            self.client.stub.Enqueue(pb.EnqueueRequest(semaphore="refuse", limit=1, payload=b"x"))
            worker.reject(worker.next(), "no")
        worker.close()
        self.client.stub.Enqueue(pb.EnqueueRequest(semaphore="refuse", payload=b"good"))
        self.open_semaphore("refuse")
        self.browser.click("#act-purge")
        self.confirm("3 dead letters of refuse purged.")
        counts = self.client.describe("refuse").tickets
        self.assertEqual((counts.queued, counts.dead), (1, 0))
        self.assertEqual(self.audited("refuse")[-1], ("purge_tickets", "OK"))
        self.assertEqual(self.browser.texts("#toasts button"), ["✕"])

    def test_an_act_whose_answer_is_lost_is_done_once(self):
        self.make("once", 2)
        # The first answer comes back from the daemon, and is lost on its way.
        self.browser.js("""
            const real = window.fetch;
            let lost = 0;
            window.fetch = async (...all) => {
              const answer = await real(...all);
              if (all[1]?.body?.includes("resize") && !lost++) throw new TypeError("lost");
              return answer;
            };""")
        self.browser.click("#act-resize")
        self.browser.type("#limit", "6")
        self.confirm("The limit of once is 6")
        self.assertEqual(self.client.describe("once").limit, 6)
        revision = self.client.describe("once").revision
        self.assertEqual(revision, 2)  # Made, and resized once.


class RightsTest(PageCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="semaphored-page-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        rules = access_file(
            os.path.join(cls.folder, "access.toml"),
            admin=("admin-token-0123456789", '{ prefixes = [""], verbs = ["acquire", "work", "verify", "administer"] }'),
            looker=("looker-token-0123456789", '{ prefixes = ["a/"], verbs = ["verify"] }'))
        cls.SETTINGS = {"access_file": rules, "http_writes": "token"}
        super().setUpClass()
        cls.client = Client(grpc.intercept_channel(cls.daemon.channel(), Bearer("admin-token-0123456789")))
        for name in ("a/one", "b/secret"):
            cls.client.administer(name, create=pb.CreateSemaphore(limit=2))
            cls.client.acquire(name, ttl_ms=TTL_MS, holder=f"holder of {name}")

    def sign_in(self, token):
        self.browser.type("#token", token)
        self.browser.click("#confirm")

    def test_sign_in_rights_and_sign_out(self):
        browser = self.browser
        browser.go(self.url + "/")
        browser.wait_text("#banner", "Sign in")
        self.assertNotIn("a/one", browser.text("main"))
        self.sign_in("not-a-token-0123456789")
        browser.wait_text("dialog [role=alert]", "No identity has this token.")
        self.sign_in("looker-token-0123456789")
        browser.wait_text("#age", "live")
        browser.wait_text("#user", "looker")
        # The cookie is out of reach of scripts.
        self.assertEqual(browser.js("return document.cookie"), "")
        browser.wait_text("tbody", "a/one")
        self.assertNotIn("b/secret", browser.text("main"))
        browser.wait_text("main", "1 semaphore ·")
        # The looker sees, and may not act; lease ids are not among what the page has.
        browser.js("location.hash = '#/s/a%2Fone'")
        browser.wait_text("p.note-line", "administer is not among your rights")
        for key in ("resize", "pause", "drain", "revoke"):
            self.assertTrue(browser.js("return document.getElementById(arguments[0]).disabled", f"act-{key}"), key)
        browser.find("button.revoke")
        self.assertTrue(browser.js("return document.querySelector('button.revoke').disabled"))
        # Nor would a page of another make do: the call itself is refused.
        code = browser.js("""
            return fetch("/semaphore.v1.SemaphoreService/Administer", {method: "POST", credentials: "same-origin",
              headers: {"Content-Type": "application/json", "X-Semaphored": "1"},
              body: JSON.stringify({semaphore: "a/one", pause: {}})}).then((answer) => answer.json()).then((body) => body.code)""")
        self.assertEqual(code, "permission_denied")
        self.assertFalse(self.client.describe("a/one").paused)
        # The daemon's figures are not for the looker, and the page says so.
        browser.js("location.hash = '#/engine'")
        browser.wait_text("main", "sqlite")
        browser.wait_text("main", "to those who may administer all names")
        self.assertFalse(browser.js("return document.querySelector('table[aria-label=Limits]').checkVisibility()"))
        browser.js("location.hash = '#/s/b%2Fsecret'")
        browser.wait_text("p.note-line", "There is no such semaphore now, or you may not see it.")
        self.assertNotIn("holder of b/secret", browser.text("body"))
        browser.click("#sign")
        browser.wait_text("#banner", "Sign in")
        # The administrator may.
        self.sign_in("admin-token-0123456789")
        browser.wait_text("#user", "admin")
        browser.js("location.hash = '#/s/b%2Fsecret'")
        browser.click("#act-pause")
        browser.click("#confirm")
        wait_until(lambda: self.client.describe("b/secret").paused, "it is paused", BOUND_S)
        browser.click("#sign")
        browser.wait_text("#banner", "Sign in")


class Bearer(grpc.UnaryUnaryClientInterceptor):
    """Shows a token with each call."""

    def __init__(self, token):
        self.metadata = (("authorization", f"Bearer {token}"),)

    def intercept_unary_unary(self, continuation, client_call_details, request):
        return continuation(client_call_details._replace(metadata=self.metadata), request)


if __name__ == "__main__":
    unittest.main()
