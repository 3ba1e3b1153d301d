//! What the program's commands do. A visit measures each of its cells in a child process: this program again or, for
//! systems of the unstable build, the one beside it.
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::measure;
use crate::options::{Cell, Effort, Visit};
use crate::random::Random;
use crate::report::{self, Rows};
use crate::systems::{Known, SYSTEMS, System};
use crate::verify as checks;

/// How the build script calls the build with `--cfg tokio_unstable`; it lies beside the other.
const UNSTABLE: &str = "timerbench-originals-unstable";

pub fn list() -> ExitCode {
    for system in &SYSTEMS {
        println!("{}", system.name);
    }
    ExitCode::SUCCESS
}

pub fn run(visit: &Visit) -> ExitCode {
    report::versions();
    let mut cells = Vec::new();
    for &system in &visit.systems {
        for (number, case) in visit
            .experiment
            .cases(system, visit.effort)
            .into_iter()
            .enumerate()
        {
            cells.push((system, number, case));
        }
    }
    Random::new(visit.seed, visit.round).shuffle(&mut cells);
    let seed = (visit.seed ^ visit.round.rotate_left(32)).to_string();
    for (system, number, case) in cells {
        let mut child = Command::new(program(system));
        child
            .args([
                "--experiment",
                visit.experiment.name(),
                "--round",
                "0",
                "--seed",
                &seed,
            ])
            .arg(match visit.effort {
                Effort::Quick => "--quick",
                Effort::Full => "--full",
            })
            .args(["--system", system.name, "--case", &number.to_string()]);
        if let Err(reason) = finish(child) {
            let rows = Rows {
                service: system.name,
                case,
            };
            rows.error(
                visit.experiment.metrics(),
                &format!("the measuring process {reason}"),
            );
        }
    }
    ExitCode::SUCCESS
}

pub fn verify(systems: &[&Known]) -> ExitCode {
    report::versions();
    let mut all_hold = true;
    for system in systems {
        let mut child = Command::new(program(system));
        child.args(["--verify", "--here", "--system", system.name]);
        if let Err(reason) = finish(child) {
            all_hold = false;
            eprintln!(
                "timerbench-originals: verifying {}: the process {reason}",
                system.name
            );
        }
    }
    if all_hold {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn program(system: &Known) -> PathBuf {
    let this = std::env::current_exe().expect("Linux tells a program its file");
    if system.unstable {
        this.with_file_name(UNSTABLE)
    } else {
        this
    }
}

fn finish(mut child: Command) -> Result<(), String> {
    match child.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("ended with {status}")),
        Err(reason) => Err(format!("did not start: {reason}")),
    }
}

pub fn cell(cell: &Cell) -> ExitCode {
    let cases = cell.experiment.cases(cell.system, cell.effort);
    let Some(&case) = cases.get(cell.case) else {
        eprintln!(
            "timerbench-originals: --case {} of {}",
            cell.case,
            cases.len()
        );
        return ExitCode::from(2);
    };
    by_name(cell.system, |system| (system.measure)(cell, case))
}

pub fn verify_here(system: &Known) -> ExitCode {
    let mut ok = false;
    let code = by_name(system, |system| ok = (system.verify)());
    if ok { code } else { ExitCode::FAILURE }
}

/// A system that this build has.
struct Built {
    name: &'static str,
    measure: fn(&Cell, crate::cases::Case),
    verify: fn() -> bool,
}

const fn built<S: System>() -> Built {
    Built {
        name: S::NAME,
        measure: measure::cell::<S>,
        verify: checks::system::<S>,
    }
}

#[cfg(not(tokio_unstable))]
const BUILT: &[Built] = &[
    built::<crate::systems::PingoraFast>(),
    built::<crate::systems::PingoraTokio>(),
    built::<crate::systems::PingoraAboveThreshold>(),
    built::<crate::systems::TokioTimeOnly>(),
    built::<crate::systems::TokioTimeAndIo>(),
    built::<crate::systems::TokioKnownWakeup>(),
];

#[cfg(tokio_unstable)]
const BUILT: &[Built] = &[built::<crate::systems::TokioPerWorker>()];

fn by_name(system: &Known, act: impl FnOnce(&Built)) -> ExitCode {
    match BUILT.iter().find(|built| built.name == system.name) {
        Some(built) => {
            act(built);
            ExitCode::SUCCESS
        }
        None => {
            eprintln!(
                "timerbench-originals: {} is in the other build of this program",
                system.name
            );
            ExitCode::from(2)
        }
    }
}
