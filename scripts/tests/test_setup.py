"""scripts/setup: what it installs, and what it says where it cannot."""

import unittest

from sandbox import ALL_PACKAGES, SandboxTest


class Setup(SandboxTest):
    def without(self, *packages):
        self.installed([package for package in ALL_PACKAGES if package not in packages])

    def test_says_in_one_line_that_nothing_is_to_do(self):
        result = self.run_script("setup")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(result.stdout.count("\n"), 1)
        self.assertIn("nothing to do", result.stdout)
        self.assertEqual(self.noted("apt-calls"), [])

    def test_needs_neither_root_nor_apt_when_nothing_is_to_do(self):
        self.stand_in("id", "echo 1000")
        (self.bin / "apt-get").unlink()
        self.assertEqual(self.run_script("setup").returncode, 0)

    def test_works_without_an_environment(self):
        del self.environment["TMPDIR"]
        self.assertEqual(self.run_script("setup").returncode, 0)

    def test_installs_what_is_missing_and_nothing_else(self):
        self.without("libfmt-dev", "libcli11-dev")
        result = self.run_script("setup")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("installing with apt: libfmt-dev libcli11-dev\n", result.stdout)
        update, install = self.noted("apt-calls")
        self.assertIn("update", update)
        self.assertTrue(install.endswith(" libfmt-dev libcli11-dev"), install)
        self.assertIn("frontend=noninteractive", install)
        self.assertIn("--no-remove", install)
        self.assert_no_temporary_files()

    def test_second_run_does_nothing(self):
        self.without("libfmt-dev", "libboost1.74-dev")
        self.run_script("setup")
        calls = len(self.noted("apt-calls"))
        self.assertIn("nothing to do", self.run_script("setup").stdout)
        self.assertEqual(len(self.noted("apt-calls")), calls)

    def test_takes_the_boost_that_is_there(self):
        self.without("libboost1.74-dev", "git")
        with (self.state / "installed").open("a", encoding="utf-8") as file:
            file.write("libboost1.81-dev\n")
        self.assertEqual(self.run_script("setup").returncode, 0)
        self.assertNotIn("boost", self.noted("apt-calls")[-1])

    def test_a_part_of_boost_is_not_boost(self):
        self.without("libboost1.74-dev")
        with (self.state / "installed").open("a", encoding="utf-8") as file:
            file.write("libboost-regex1.74-dev\n")
        self.run_script("setup")
        self.assertTrue(self.noted("apt-calls")[-1].endswith(" libboost-dev"))

    def test_what_was_removed_or_is_half_installed_is_missing(self):
        self.installed([f"{package} config-files" if package == "git" else
                        f"{package} half-installed" if package == "libboost1.74-dev" else
                        f"{package} not-installed" if package == "cmake" else package for package in ALL_PACKAGES])
        self.run_script("setup")
        self.assertTrue(self.noted("apt-calls")[-1].endswith(" cmake git libboost-dev"), self.noted("apt-calls"))

    def test_lists_what_is_needed_without_apt(self):
        self.without("libfmt-dev", "cmake")
        (self.bin / "apt-get").unlink()
        self.assert_one_line_exit_2(self.run_script("setup"), "apt-get", "libfmt-dev", "cmake")

    def test_lists_everything_on_another_distribution(self):
        (self.bin / "apt-get").unlink()
        (self.bin / "dpkg-query").unlink()
        self.assert_one_line_exit_2(self.run_script("setup"), *ALL_PACKAGES[:-1], "libboost-dev")

    def test_lists_what_is_needed_without_root_and_sudo(self):
        self.without("libfmt-dev")
        self.stand_in("id", "echo 1000")
        self.assert_one_line_exit_2(self.run_script("setup"), "root", "sudo", "libfmt-dev")
        self.assertEqual(self.noted("apt-calls"), [])

    def test_does_not_ask_for_a_password(self):
        self.without("libfmt-dev")
        self.stand_in("id", "echo 1000")
        self.stand_in("sudo", '[[ $1 == -n ]] || read -r answer; exit 1')
        self.assert_one_line_exit_2(self.run_script("setup"), "neither root nor sudo", "libfmt-dev")

    def test_uses_sudo_that_asks_for_nothing(self):
        self.without("libfmt-dev")
        self.stand_in("id", "echo 1000")
        self.stand_in("sudo", '[[ $1 == -n ]] || exit 1; shift; UNDER_SUDO=yes exec "$@"')
        self.stand_in("true", "exit 0")
        self.assertEqual(self.run_script("setup").returncode, 0)
        self.assertTrue(all("sudo=yes" in call for call in self.noted("apt-calls")))

    def test_a_failure_of_apt_is_one_line(self):
        self.without("libfmt-dev")
        self.flag("apt-fails")
        self.assert_one_line_exit_2(self.run_script("setup"), "libfmt-dev", "E: Unable to locate package nonsense",
                                    "update failed too")
        self.assert_no_temporary_files()

    def test_does_not_believe_apt(self):
        self.without("libfmt-dev")
        self.flag("apt-lies")
        self.assert_one_line_exit_2(self.run_script("setup"), "not installed", "libfmt-dev")

    def test_unknown_argument(self):
        self.assert_one_line_exit_2(self.run_script("setup", "--force"), "'--force'")


if __name__ == "__main__":
    unittest.main()
