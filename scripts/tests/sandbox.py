"""A folder to run the scripts in: a checkout with a space in its path, and a PATH of which every command is known.

The PATH holds links to the ordinary tools the scripts use and stand-ins for what would change or build something:
dpkg-query, apt-get, sudo, id, cmake, ctest. What a stand-in does is decided by the files of the sandbox's `state` folder.
"""

import os
import pathlib
import shutil
import stat
import subprocess
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent

TOOLS = """awk basename bash cat cp cut date dirname env grep head ln mkdir mktemp mv nproc python3 rm sed setarch sleep
sort tail tee timeout touch tr uname""".split()

# Prints what matches of state/installed (a package a line, behind it its status unless that is "installed"), as
# dpkg-query -W -f would.
DPKG_QUERY = r"""
pattern=${!#}
found=1
while read -r package status; do
    status=${status:-installed}
    # shellcheck disable=SC2254
    case $package in $pattern)
        found=0
        if [[ $* == *Package* ]]; then echo "$package $status"; else echo "$status"; fi ;;
    esac
done <"$STATE/installed"
exit $found
"""

# Takes note of its arguments; fails like apt when state/apt-fails is there; installs unless state/apt-lies is.
APT_GET = r"""
echo "frontend=${DEBIAN_FRONTEND:-} sudo=${UNDER_SUDO:-no} $*" >>"$STATE/apt-calls"
[[ ! -e $STATE/apt-fails ]] || { echo "E: Unable to locate package nonsense" ; exit 100; }
[[ " $* " == *" install "* ]] || exit 0
[[ ! -e $STATE/apt-lies ]] || exit 0
for word; do
    case $word in -* | *=* | install) ;; libboost-dev) echo libboost1.74-dev >>"$STATE/installed" ;;
    *) echo "$word" >>"$STATE/installed" ;; esac
done
"""

ALL_PACKAGES = """g++ cmake ninja-build pkg-config git libbenchmark-dev libevent-dev libfmt-dev libcli11-dev
nlohmann-json3-dev libgtest-dev python3 python3-jsonschema python3-numpy python3-scipy libboost1.74-dev""".split()


class SandboxTest(unittest.TestCase):
    """Gives each test a fresh sandbox, with everything installed and root as the user."""

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="timerbench test ")
        self.addCleanup(holder.cleanup)
        top = pathlib.Path(holder.name).resolve()
        self.state = top / "state"
        self.checkout = top / "a checkout"
        self.bin = top / "bin"
        self.elsewhere = top / "elsewhere"
        for folder in (self.state, self.checkout, self.bin, self.elsewhere, top / "tmp"):
            folder.mkdir()
        shutil.copytree(SCRIPTS, self.checkout / "scripts", ignore=shutil.ignore_patterns("tests", "__pycache__"))
        for tool in TOOLS:
            self.link(tool)
        self.stand_in("dpkg-query", DPKG_QUERY)
        self.stand_in("apt-get", APT_GET)
        self.stand_in("id", "echo 0")
        self.installed(ALL_PACKAGES)
        self.environment = {"PATH": str(self.bin), "STATE": str(self.state), "TMPDIR": str(top / "tmp"),
                            "PYTHONDONTWRITEBYTECODE": "1"}
        self.tmp = top / "tmp"

    def link(self, tool):
        path = shutil.which(tool)
        if path is None:
            self.skipTest(f"{tool} is not installed")
        # A link to the shim of a version manager would not find its version without HOME.
        if tool == "python3" and os.access("/usr/bin/python3", os.X_OK):
            path = "/usr/bin/python3"
        (self.bin / tool).symlink_to(path)

    def program(self, path, text, shell="/bin/bash"):
        """Writes an executable script."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_text(f"#!{shell}\n{text}\n", encoding="utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def stand_in(self, name, text):
        self.program(self.bin / name, text)

    def installed(self, packages):
        (self.state / "installed").write_text("".join(f"{package}\n" for package in packages), encoding="utf-8")

    def flag(self, name, text=""):
        (self.state / name).write_text(text, encoding="utf-8")

    def noted(self, name):
        """The lines that stand-ins wrote to a file of the state folder."""
        path = self.state / name
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def command(self, script, *arguments):
        return ["/bin/bash", str(self.checkout / "scripts" / script), *map(str, arguments)]

    def run_script(self, script, *arguments, cwd=None, **environment):
        return subprocess.run(self.command(script, *arguments), cwd=cwd or self.elsewhere, check=False,
                              env=self.environment | environment, capture_output=True, text=True, timeout=120)

    def assert_one_line_exit_2(self, result, *words):
        """A user error: exit code 2, one line on standard error that holds every word."""
        self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def assert_no_temporary_files(self):
        self.assertEqual(os.listdir(self.tmp), [])
