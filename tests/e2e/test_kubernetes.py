"""deploy/kubernetes: each installation is rendered by kustomize, is what Kubernetes' schemas allow, and its daemon runs with
the settings, the probes and the files that the manifests give it. No cluster is started."""

import functools
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import unittest

import yaml

import node_packages
from certificates import Authority
from daemon import BIN_DIR, BOUND_S, free_port, wait_until
from root import in_root, root_of

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), os.pardir, os.pardir))
FOLDER = os.path.join(ROOT, "deploy/kubernetes")
KINDS = {"embedded": "StatefulSet", "postgres": "Deployment"}
APP = {"app.kubernetes.io/name": "semaphored"}
DAEMON = os.path.join(BIN_DIR, "semaphored")


@functools.cache
def rendered(overlay):
    """The objects, by kind."""
    # Debian 12 has no kustomize.
    done = subprocess.run(in_root(root_of("trixie"), ["kustomize", "build", os.path.join(FOLDER, overlay)]),
                          capture_output=True, text=True, check=False, timeout=BOUND_S)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    objects = list(yaml.safe_load_all(done.stdout))
    assert len({each["kind"] for each in objects}) == len(objects), "one of each kind"
    return {each["kind"]: each for each in objects}


def pod_of(overlay):
    return rendered(overlay)[KINDS[overlay]]["spec"]["template"]


def container_of(overlay):
    container, = pod_of(overlay)["spec"]["containers"]
    return container


def environment_of(overlay):
    """With what Kubernetes fills in."""
    objects = rendered(overlay)
    environment = {}
    for each in container_of(overlay)["env"]:
        source = each.get("valueFrom", {})
        if "fieldRef" in source:
            assert source["fieldRef"]["fieldPath"] == "metadata.name"
            environment[each["name"]] = "semaphored-0"
        elif "configMapKeyRef" in source:
            config = objects["ConfigMap"]
            assert config["metadata"]["name"] == source["configMapKeyRef"]["name"]
            environment[each["name"]] = config["data"][source["configMapKeyRef"]["key"]]
        else:
            environment[each["name"]] = each["value"]
    return environment


def check_schemas(objects):
    """What there is to say against them."""
    done = subprocess.run(["node", os.path.join(node_packages.KUBERNETES, "schemas.mjs"),
                           node_packages.folder(node_packages.KUBERNETES)],
                          input=json.dumps(objects), capture_output=True, text=True, check=False, timeout=BOUND_S)
    assert done.returncode in (0, 1) and not done.stderr, done.stderr
    return done.stdout.splitlines()


class Manifests(unittest.TestCase):

    def test_schemas_allow_them(self):
        for overlay in KINDS:
            self.assertEqual(check_schemas(list(rendered(overlay).values())), [])

    def test_schemas_find_what_is_wrong(self):
        deployment = rendered("postgres")["Deployment"]
        text = json.dumps(deployment)
        for right, wrong, said in (('"replicas": 2', '"replicas": "2"', "/spec/replicas"),
                                   ('"readOnlyRootFilesystem"', '"readOnlyRootFileSystem"', "readOnlyRootFileSystem"),
                                   ('"readinessProbe"', '"readyProbe"', "readyProbe")):
            self.assertIn(right, text)
            found = check_schemas([json.loads(text.replace(right, wrong))])
            self.assertEqual(len(found), 1, found)
            self.assertIn(said, found[0])

    def test_the_daemon_knows_each_setting(self):
        for overlay in KINDS:
            with self.subTest(overlay):
                environment = environment_of(overlay)
                for name in environment:
                    self.assertRegex(name, "^SEMAPHORED_[A-Z_]+$")
                done = subprocess.run([DAEMON, "--print-config"], env=environment, capture_output=True, text=True,
                                      check=False, timeout=BOUND_S)
                # It warns of variables that it does not know.
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                for name, value in environment.items():
                    value = re.sub("(password_file=).*", r"\1***", value)  # As it is printed.
                    setting = name.removeprefix("SEMAPHORED_").lower()
                    self.assertRegex(done.stdout, rf'(?m)^{setting} = "?{re.escape(value)}"?$')

    def test_ports_are_those_of_the_settings(self):
        for overlay in KINDS:
            with self.subTest(overlay):
                environment = environment_of(overlay)
                ports = {port["name"]: port["containerPort"] for port in container_of(overlay)["ports"]}
                self.assertEqual(ports, {"grpc": int(environment["SEMAPHORED_LISTEN"].rsplit(":")[-1]),
                                         "metrics": int(environment["SEMAPHORED_METRICS_LISTEN"].rsplit(":")[-1])})
                service = rendered(overlay)["Service"]
                self.assertEqual({port["name"]: port["port"] for port in service["spec"]["ports"]}, ports)
                self.assertTrue(all(port["targetPort"] == port["name"] for port in service["spec"]["ports"]))
                policy = rendered(overlay)["NetworkPolicy"]["spec"]
                self.assertEqual([rule["ports"][0]["port"] for rule in policy["ingress"]], ["grpc", "metrics"])
                endpoint, = rendered(overlay)["ServiceMonitor"]["spec"]["endpoints"]
                self.assertEqual(endpoint["port"], "metrics")

    def test_selectors_mean_these_pods_and_no_others(self):
        for overlay, kind in KINDS.items():
            with self.subTest(overlay):
                objects = rendered(overlay)
                self.assertEqual(pod_of(overlay)["metadata"]["labels"], APP)
                self.assertEqual(objects[kind]["spec"]["selector"], {"matchLabels": APP})
                self.assertEqual(objects["Service"]["spec"]["selector"], APP)
                self.assertEqual(objects["NetworkPolicy"]["spec"]["podSelector"], {"matchLabels": APP})
                clients = objects["NetworkPolicy"]["spec"]["ingress"][0]["from"][0]
                self.assertEqual(clients["podSelector"], {"matchLabels": {"semaphored-client": "true"}})
                monitored = objects["ServiceMonitor"]["spec"]["selector"]["matchLabels"].items()
                self.assertLessEqual(monitored, objects["Service"]["metadata"]["labels"].items())
        self.assertEqual(rendered("postgres")["PodDisruptionBudget"]["spec"],
                         {"minAvailable": 1, "selector": {"matchLabels": APP}})
        self.assertGreater(rendered("postgres")["Deployment"]["spec"]["replicas"], 1)
        self.assertEqual(rendered("embedded")["StatefulSet"]["spec"]["replicas"], 1)

    def test_pods_have_no_more_rights_than_they_need(self):
        for overlay in KINDS:
            with self.subTest(overlay):
                pod = pod_of(overlay)["spec"]
                self.assertEqual((pod["automountServiceAccountToken"], pod["enableServiceLinks"]), (False, False))
                self.assertTrue(pod["securityContext"]["runAsNonRoot"])
                self.assertEqual(pod["securityContext"]["runAsUser"], 7420)
                self.assertEqual(container_of(overlay)["securityContext"],
                                 {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                                  "capabilities": {"drop": ["ALL"]}})
                mounts = container_of(overlay)["volumeMounts"]
                self.assertEqual([mount["mountPath"] for mount in mounts if not mount.get("readOnly")],
                                 ["/var/lib/semaphored"])
                volumes = {volume["name"] for volume in pod["volumes"]}
                claims = rendered(overlay)[KINDS[overlay]]["spec"].get("volumeClaimTemplates", [])
                volumes |= {claim["metadata"]["name"] for claim in claims}
                self.assertEqual({mount["name"] for mount in mounts}, volumes)

    def test_there_is_time_to_stop(self):
        done = subprocess.run([DAEMON, "--print-config"], capture_output=True, text=True, check=True, timeout=BOUND_S)
        grace_s = int(re.search(r'(?m)^shutdown_grace = "(\d+)s"$', done.stdout).group(1))
        for overlay in KINDS:
            self.assertGreaterEqual(pod_of(overlay)["spec"]["terminationGracePeriodSeconds"], 2 * grace_s)

    def test_secrets_are_those_that_the_documentation_makes(self):
        with open(os.path.join(ROOT, "docs/install.md"), encoding="utf-8") as file:
            made = set(re.findall(r"kubectl create secret \w+ (\S+)", file.read()))
        used = {volume["secret"]["secretName"] for overlay in KINDS for volume in pod_of(overlay)["spec"]["volumes"]
                if "secret" in volume}
        self.assertEqual(used, made)


class Runs(unittest.TestCase):
    """The daemon of `embedded`, with the manifests' files in a folder instead of volumes."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="semaphored-kubernetes-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for name in ("tls", "access", "state"):
            os.mkdir(os.path.join(self.folder, name))
        pair = Authority(self.folder, "authority").sign("semaphored")
        self.put(pair.cert_file, "tls/tls.crt")
        self.put(pair.key_file, "tls/tls.key")
        self.put(os.path.join(ROOT, "deploy/access.example.toml"), "access/access.toml")
        self.ports = {"7420": free_port(), "7430": free_port()}
        self.environment = {"PATH": f"{BIN_DIR}:{os.environ['PATH']}",
                            **{name: self.here(value) for name, value in environment_of("embedded").items()}}

    def put(self, source, name):
        path = os.path.join(self.folder, name)
        shutil.copy(source, path)
        os.chmod(path, 0o440)

    def here(self, value):
        value = value.replace("/etc/semaphored", self.folder).replace("/var/lib/semaphored", f"{self.folder}/state")
        return re.sub(r"^0\.0\.0\.0:(\d+)$", lambda match: f"0.0.0.0:{self.ports[match.group(1)]}", value)

    def probe(self, name):
        command = container_of("embedded")[name]["exec"]["command"]
        return subprocess.run(command, env=self.environment, capture_output=True, check=False,
                              timeout=container_of("embedded")[name]["timeoutSeconds"]).returncode

    def test_it_serves_and_its_probes_say_so(self):
        self.assertNotEqual(self.probe("startupProbe"), 0)
        log = os.path.join(self.folder, "log")
        with open(log, "wb") as out:
            process = subprocess.Popen(["semaphored"], env=self.environment, stdout=out, stderr=out)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        wait_until(lambda: self.probe("startupProbe") == 0, "it has started")
        wait_until(lambda: self.probe("readinessProbe") == 0, "it is ready")
        self.assertEqual(self.probe("livenessProbe"), 0)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(pod_of("embedded")["spec"]["terminationGracePeriodSeconds"]), 0)
        with open(log, encoding="utf-8") as file:
            self.assertNotIn("unknown", file.read())


if __name__ == "__main__":
    unittest.main()
