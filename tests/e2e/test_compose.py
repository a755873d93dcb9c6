"""docker-compose.yml: sound for every profile, and its daemons' settings are such as the daemon takes. No container
is started: that needs an engine for them."""

import functools
import os
import re
import shutil
import subprocess
import tempfile
import unittest

import yaml

from daemon import BIN_DIR, BOUND_S

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), os.pardir, os.pardir))
SHARED = ("postgres", "consul", "rabbitmq", "dynamodb")


@functools.cache
def configured(profile):
    """The services of this profile, by name, as docker-compose understands the file."""
    command = ["docker-compose", "--project-directory", ROOT, "-f", os.path.join(ROOT, "docker-compose.yml")]
    if profile:
        command += ["--profile", profile]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("COMPOSE_")}
    done = subprocess.run([*command, "config"], capture_output=True, text=True, check=False,
                          timeout=3 * BOUND_S, cwd=ROOT, env=environment)
    if done.returncode != 0:
        raise AssertionError(f"{profile}: {done.stderr}")
    return yaml.safe_load(done.stdout)


def services_of(profile):
    return {name: service for name, service in configured(profile)["services"].items()
            if profile in service.get("profiles", [profile])}


def daemons_of(profile):
    return {name: service for name, service in services_of(profile).items()
            if service["image"] == "semaphored:local" and not service.get("command")}


class Compose(unittest.TestCase):

    def test_plain_up_is_one_daemon_on_the_embedded_store(self):
        with open(os.path.join(ROOT, ".env"), encoding="utf-8") as settings:
            self.assertIn("COMPOSE_PROFILES=embedded\n", settings.read())
        self.assertEqual(list(services_of("embedded")), ["embedded"])
        service = services_of("embedded")["embedded"]
        self.assertEqual([volume.split(":")[1] for volume in service["volumes"]],
                         ["/var/lib/semaphored"])

    def test_an_engine_has_two_daemons_behind_one_name(self):
        for profile in SHARED:
            with self.subTest(profile):
                daemons = daemons_of(profile)
                self.assertEqual(sorted(daemons), [f"{profile}-a", f"{profile}-b"])
                nodes = {service["environment"]["SEMAPHORED_NODE_ID"] for service in daemons.values()}
                self.assertEqual(len(nodes), 2, "daemons of one engine need names of their own")
                self.assertEqual(
                    len({service["environment"]["SEMAPHORED_STORE"] for service in daemons.values()}), 1)
                for service in daemons.values():
                    self.assertIn("semaphored", service["networks"]["default"]["aliases"])
                ports = [port for service in daemons.values() for port in service["ports"]]
                self.assertEqual(len(set(map(str, ports))), 2, ports)

    def test_every_service_is_kept_within_bounds(self):
        for profile in ("embedded", "demo", *SHARED):
            for name, service in services_of(profile).items():
                with self.subTest(profile=profile, service=name):
                    self.assertIn("memory", service["deploy"]["resources"]["limits"])
                    self.assertRegex(service["image"], r"^\S+:(\d[\w.]*|local)$", "a pinned version")
                    self.assertIn("healthcheck", service)
                    for port in service.get("ports", []):
                        self.assertRegex(str(port), r"127\.0\.0\.1", "published on this machine only")

    def test_daemons_wait_for_what_they_need_and_write_nowhere_else(self):
        for profile in ("embedded", *SHARED):
            for name, service in daemons_of(profile).items():
                with self.subTest(service=name):
                    self.assertTrue(service["read_only"])
                    self.assertEqual(service["cap_drop"], ["ALL"])
                    self.assertEqual(service["restart"], "unless-stopped")
                    self.assertEqual(service["healthcheck"]["test"], ["CMD", "semaphored", "health"])
                    needed = service.get("depends_on", {})
                    self.assertEqual(bool(needed), profile != "embedded")
                    for what, how in needed.items():
                        expected = ("service_completed_successfully" if what == "dynamodb-table"
                                    else "service_healthy")
                        self.assertEqual(how["condition"], expected)

    def test_the_daemon_takes_its_settings(self):
        for profile in ("embedded", *SHARED):
            for name, service in daemons_of(profile).items():
                with self.subTest(service=name):
                    environment = {"PATH": os.environ["PATH"], **service["environment"]}
                    done = subprocess.run([os.path.join(BIN_DIR, "semaphored"), "--print-config"],
                                          capture_output=True, text=True, timeout=BOUND_S,
                                          check=False, env=environment)
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    self.assertIn('listen = "0.0.0.0:7420"', done.stdout)

    def test_secrets_are_files_that_the_script_makes(self):
        with tempfile.TemporaryDirectory() as folder:
            script = shutil.copy(os.path.join(ROOT, "deploy/compose/secrets.sh"), folder)
            made = [subprocess.run(["sh", script], capture_output=True, text=True, check=True,
                                   timeout=BOUND_S).stdout.strip() for _ in range(2)][0]

            def read(name):
                with open(os.path.join(made, name), encoding="utf-8") as file:
                    return file.read()
            first = read("postgres_password")
            self.assertRegex(first, r"^[0-9a-f]{48}\n$")
            subprocess.run(["sh", script], check=True, timeout=BOUND_S, stdout=subprocess.DEVNULL)
            self.assertEqual(read("postgres_password"), first, "a second run changes nothing")
            self.assertIn(read("rabbitmq_password").strip(), read("rabbitmq.conf"))
            for name, secret in configured(None)["secrets"].items():
                with self.subTest(secret=name):
                    relative = os.path.relpath(secret["file"], ROOT)
                    self.assertEqual(os.path.dirname(relative), "deploy/compose/secrets")
                    self.assertTrue(read(os.path.basename(relative)))

    def test_no_secret_stands_in_the_file(self):
        with open(os.path.join(ROOT, "docker-compose.yml"), encoding="utf-8") as file:
            text = file.read()
        self.assertEqual(re.findall(r"(?i)(?:password|secret[_-]?key)\s*[:=](?! \{file: )\s*\S+", text), [])


if __name__ == "__main__":
    unittest.main()
