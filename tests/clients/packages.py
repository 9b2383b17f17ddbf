"""Installs clients from their registries, into a directory that is removed at the end.

Each tool uses the registry that it is set up for. Debian's packages are unpacked, not installed: nothing of this
host changes, and no service is started.
"""

import os
import re
import shutil
import subprocess
import sys


class Unavailable(Exception):
    """A client cannot be installed here, and why."""


class Packages:
    """The installed clients."""

    def __init__(self, directory):
        self.directory = directory
        self.root = directory / "debian"

    def python(self, *names):
        """Installs packages of PyPI into an environment of their own. Returns its interpreter."""
        environment = self.directory / ("python-" + re.sub(r"\W", "-", names[0]))
        run([sys.executable, "-m", "venv", str(environment)], "no environment for Python")
        interpreter = environment / "bin" / "python"
        pip = [str(interpreter), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run(pip + list(names), "PyPI")
        return str(interpreter)

    def node(self, *names):
        """Installs packages of npm. Returns the directory with `node_modules`."""
        if not shutil.which("npm"):
            raise Unavailable("there is no npm")
        directory = self.directory / "node"
        directory.mkdir(exist_ok=True)
        command = ["npm", "install", "--prefix", str(directory), "--no-audit", "--no-fund", "--silent"]
        run(command + list(names), "npm")
        return directory

    def debian(self, name):
        """Unpacks a package of Debian with what it needs and this host lacks. Returns its version."""
        if not shutil.which("apt-get"):
            raise Unavailable("there is no apt-get")
        plan = ["apt-get", "install", "--simulate", "--no-install-recommends", "--reinstall", name]
        output = run(plan, "Debian's packages: " + name)
        needed = dict(re.findall(r"^Inst (\S+) (?:\[\S+\] )?\((\S+)", output, re.MULTILINE))
        if name not in needed:
            raise Unavailable(f"Debian's packages do not have {name}")
        archives = self.directory / "archives"
        archives.mkdir(exist_ok=True)
        self.root.mkdir(exist_ok=True)
        for package in needed:
            run(["apt-get", "download", "--quiet", package], f"Debian's packages: {package}", archives)
        for archive in sorted(archives.glob("*.deb")):
            run(["dpkg", "--extract", str(archive), str(self.root)], f"cannot unpack {archive.name}")
            archive.unlink()
        return needed[name].split(":")[-1]

    def debian_environment(self):
        """Variables for programs of unpacked packages."""
        libraries = [str(path) for path in self.root.glob("usr/lib/*-linux-gnu")]
        return {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)}


def run(command, what, directory=None):
    """Output of a command; its failure makes the client unavailable."""
    try:
        done = subprocess.run(
            command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, text=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{what}: {error}") from error
    if done.returncode != 0:
        last = (done.stdout.strip().splitlines() or ["no reason given"])[-1]
        # Without the address of the registry.
        raise Unavailable(f"{what}: " + re.sub(r"\w+://\S+", "...", last)[:160])
    return done.stdout
