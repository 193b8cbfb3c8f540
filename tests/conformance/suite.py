"""The images of Kubernetes' own suite, made of this machine's busybox; its run, and the table of what came of it."""

import hashlib
import io
import json
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as xml
from concurrent.futures import ThreadPoolExecutor

E2E = "registry.k8s.io/e2e-test-images/"
FOCUS = r"\[sig-node\].*\[NodeConformance\]"
SKIP = r"\[Serial\]|\[Slow\]|\[Disruptive\]|\[Flaky\]"
# A sandbox heeds SIGTERM, as the real one does.
# As far as hooks of the suite use it.
CURL = b"#!/bin/sh\nfor last; do :; done\nexec wget -q -O- \"$last\"\n"
BASH = b"#!/bin/sh\nexec /bin/sh \"$@\"\n"
PAUSE = "trap 'exit 0' TERM INT; while :; do sleep 100000 & wait $!; done"
USERS = b"root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"
PAGE = pathlib.Path("docs/conformance.md")
# What the suite's image of that name does: its owner is root, and its bit is set.
NONEWPRIVS = b"#include <stdio.h>\n#include <unistd.h>\nint main() { return printf(\"Effective uid: %d\\n\", geteuid()) < 0; }\n"


def add(archive, name, data, mode=0o644):
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(data), mode
    archive.addfile(entry, io.BytesIO(data))


def layer(files, links=()):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("bin", "dev", "etc", "proc", "root", "sys", "tmp", "usr", "usr/bin", "var"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(entry)
        for name, data, mode in files:
            add(archive, name, data, mode)
        for name, target in links:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, target
            archive.addfile(entry)
    return out.getvalue()


def images(agnhost, into):
    """An archive for `ctr images import`, with the names that the suite asks for."""
    busybox = pathlib.Path("/bin/busybox").read_bytes()
    applets = subprocess.check_output(["/bin/busybox", "--list"], text=True).split()
    links = [(f"bin/{applet}", "busybox") for applet in applets if applet != "busybox"]
    scripts = [("bin/bash", BASH, 0o755), ("bin/curl", CURL, 0o755)]
    shell = layer([("bin/busybox", busybox, 0o755), *scripts, ("etc/passwd", USERS, 0o644)], links)
    with tempfile.TemporaryDirectory() as directory:
        built = pathlib.Path(directory)
        subprocess.run(["cc", "-static", "-x", "c", "-", "-o", built / "nnp"], input=NONEWPRIVS, check=True)
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-keyout", built / "localhost.key", "-out", built / "localhost.crt"], check=True, stderr=subprocess.DEVNULL)
        nnp = layer([("bin/nnp", (built / "nnp").read_bytes(), 0o4755)])
        certificate = [(name, (built / name).read_bytes(), 0o644) for name in ("localhost.crt", "localhost.key")]
    helper = layer([("agnhost", pathlib.Path(agnhost).read_bytes(), 0o755), *certificate], [("agnhost-2", "agnhost")])
    made = [
        (["registry.k8s.io/pause:3.10.2"], [shell], {"Cmd": ["/bin/sh", "-c", PAUSE]}),
        ([E2E + "busybox:1.37.0-1", E2E + "glibc-dns-testing:2.0.0"], [shell], {"Cmd": ["sh"]}),
        ([E2E + "nonroot:1.5"], [shell], {"Cmd": ["id"], "User": "1234"}),
        ([E2E + "nonewprivs:1.4"], [shell, nnp], {"Cmd": ["nnp"]}),
        ([E2E + "agnhost:2.63.0", E2E + "agnhost:2.55"], [shell, helper], {"Entrypoint": ["/agnhost"], "Cmd": ["pause"]}),
    ]
    manifest, written = [], set()
    with tarfile.open(into, "w") as archive:
        for number, (names, layers, config) in enumerate(made):
            digests = [hashlib.sha256(one).hexdigest() for one in layers]
            for digest, one in zip(digests, layers):
                if digest not in written:
                    add(archive, f"{digest}.tar", one)
                    written.add(digest)
            config = {"Env": ["PATH=/usr/bin:/bin"], **config}
            rootfs = {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]}
            image = {"architecture": "amd64", "os": "linux", "config": config, "rootfs": rootfs}
            add(archive, f"{number}.json", json.dumps(image).encode())
            tarballs = [f"{digest}.tar" for digest in digests]
            manifest.append({"Config": f"{number}.json", "RepoTags": names, "Layers": tarballs})
        add(archive, "manifest.json", json.dumps(manifest).encode())


def cases(report):
    """The tests of a report, without those that were left out: name, and why it failed."""
    for case in xml.parse(report).iter("testcase"):
        name = case.get("name")
        if name.startswith("[It]") and case.find("skipped") is None:
            failure = case.find("failure") if case.find("failure") is not None else case.find("error")
            why = None if failure is None else failure.get("message") or case.get("status")
            # The labels once more.
            yield re.sub(r" \[[^]]*\]$", "", name[5:]), why


def run(program, work, shards, limit, runs, focus):
    """Runs the tests whose names `focus` finds `runs` times, `shards` at a time, and writes down how each run ended."""
    common = [program, f"--kubeconfig={work}/admin.kubeconfig", "--provider=local", "--num-nodes=1",
              "--ginkgo.no-color", "--ginkgo.v", "--dump-logs-on-failure=false", f"--ginkgo.skip={SKIP}", f"--ginkgo.timeout={limit}"]
    listed = f"{work}/listed.xml"
    subprocess.run([*common, f"--ginkgo.focus={FOCUS}", "--ginkgo.dry-run", f"--ginkgo.junit-report={listed}"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    names = sorted(name for name, _ in cases(listed) if re.search(focus, name))
    found = {name: [] for name in names}
    total = len(names) * runs

    def one(number):
        name = names[number % len(names)]
        # `]` alone needs no escape, and Go takes none for a space.
        exact = re.sub(r"([][(){}.*+?^$|\\])", r"\\\1", name)
        log = f"{work}/log/test-{number}"
        with open(log, "w") as out:
            subprocess.run([*common, f"--ginkgo.focus={exact}", f"--ginkgo.junit-report={log}.xml"], stdout=out, stderr=out)
        ends = dict(cases(f"{log}.xml")) if pathlib.Path(f"{log}.xml").exists() else {}
        why = ends.get(name, "the suite ended before it")
        found[name].append(why)
        ended = sum(map(len, found.values()))
        print(f"{ended}/{total} {'failed' if why else 'passed'}: {name} ({log})", flush=True)

    with ThreadPoolExecutor(shards) as pool:
        list(pool.map(one, range(total)))
    pathlib.Path(f"{work}.json").write_text(json.dumps(found))
    print(f"{sum(why is None for all in found.values() for why in all)} of {total} passed")


def reason(why):
    """Of what the suite says: what it waited for or expected, without the objects that it shows."""
    return "`" + re.split(r",? got instead:| +<[*a-z]", " ".join(why.split()).replace("`", "'"))[0][:200] + "`"


def cell(ends):
    """How often a test passed of how many runs, and why it failed first."""
    passed = ends.count(None)
    why = next((f": {reason(why)}" for why in ends if why is not None), "")
    return f"{passed} of {len(ends)}{why}"


def always(found):
    """The tests that passed each time."""
    return {name for name, ends in found.items() if ends.count(None) == len(ends) > 0}


def page(work, version):
    """Writes the page from what `run` wrote down of each node."""
    of = {path.stem: json.loads(path.read_text()) for path in sorted(pathlib.Path(work).glob("*.json"), reverse=True)}
    ours, passed = of["winddown"], always(of["winddown"])
    lines = [
        "# Conformance of a node",
        "",
        f"`make conformance` writes this page: what Kubernetes' own suite, {version}, says of a node in cluster mode with",
        "containerd. The tests are those of sig-node that every node has to pass (`[NodeConformance]`), without the slow",
        "and the disruptive, with images made on the machine. The table says in how many runs each passed.",
        "",
        f"**{len(passed)} of {len(ours)} passed in each run.**",
    ]
    if "kubelet" in of:
        both = always(of["kubelet"])
        share = len(passed & both) / max(len(both), 1)
        lines[-1] += f" The kubelet passes {len(both)} of them in the same box; of those, {share:.0%} pass."
    lines += ["", f"| test | {' | '.join(of)} |", "|---|" + "---|" * len(of)]
    for name in sorted(ours, key=lambda name: (name in passed, name)):
        cells = [cell(found.get(name, [])) for found in of.values()]
        lines.append(f"| {' | '.join(one.replace('|', chr(92) + '|') for one in (f'`{name}`', *cells))} |")
    PAGE.write_text("\n".join(lines) + "\n")
    print(lines[6].replace("*", ""), f"The table is in {PAGE}")


if __name__ == "__main__":
    what, *rest = sys.argv[1:]
    if what == "images":
        images(*rest)
    elif what == "run":
        run(rest[0], rest[1], int(rest[2]), rest[3], int(rest[4]), rest[5])
    elif what == "page":
        page(*rest)
    else:
        sys.exit(f"{what}: write `images`, `run` or `page`")
