//! The command line.
use crate::cases::Experiment;
use crate::systems::{Known, SYSTEMS};

pub const USAGE: &str = "usage: --experiment NAME --round N --seed S (--quick | --full) [--system SUBSTRING ...] \
                         | --verify [--system SUBSTRING ...] | --list";

/// How long a visit may take: `Quick` makes fewer and shorter samples of the same cases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    Quick,
    Full,
}

impl Effort {
    pub fn pick<T>(self, quick: T, full: T) -> T {
        match self {
            Effort::Quick => quick,
            Effort::Full => full,
        }
    }
}

/// One visit of every system x case of an experiment.
pub struct Visit {
    pub experiment: Experiment,
    pub round: u64,
    pub seed: u64,
    pub effort: Effort,
    pub systems: Vec<&'static Known>,
}

/// One system x case, to be measured in this process. `case` counts the cases that the experiment has for the system.
pub struct Cell {
    pub experiment: Experiment,
    pub seed: u64,
    pub effort: Effort,
    pub system: &'static Known,
    pub case: usize,
}

pub enum Command {
    List,
    Verify { systems: Vec<&'static Known> },
    VerifyHere { system: &'static Known },
    Visit(Visit),
    Cell(Cell),
}

#[derive(Default)]
struct Given {
    list: bool,
    verify: bool,
    here: bool,
    experiment: Option<Experiment>,
    round: Option<u64>,
    seed: Option<u64>,
    effort: Option<Effort>,
    case: Option<usize>,
    systems: Vec<String>,
}

/// What the arguments ask for, or one line that says which of them is wrong and what would be right.
pub fn parse(arguments: impl Iterator<Item = String>) -> Result<Command, String> {
    let given = read(arguments)?;
    if given.list {
        return Ok(Command::List);
    }
    let systems = chosen(&given.systems)?;
    if given.verify {
        if !given.here {
            return Ok(Command::Verify { systems });
        }
        let &[system] = systems.as_slice() else {
            return Err("--here takes exactly one --system".into());
        };
        return Ok(Command::VerifyHere { system });
    }
    let experiment = given
        .experiment
        .ok_or_else(|| format!("nothing to do; {USAGE}"))?;
    let effort = given
        .effort
        .ok_or("neither --quick nor --full was given; one of them is needed")?;
    let seed = given.seed.ok_or("--seed is missing; it takes a number")?;
    let round = given.round.ok_or("--round is missing; it takes a number")?;
    let Some(case) = given.case else {
        return Ok(Command::Visit(Visit {
            experiment,
            round,
            seed,
            effort,
            systems,
        }));
    };
    let &[system] = systems.as_slice() else {
        return Err("--case takes exactly one --system".into());
    };
    Ok(Command::Cell(Cell {
        experiment,
        seed,
        effort,
        system,
        case,
    }))
}

fn read(mut arguments: impl Iterator<Item = String>) -> Result<Given, String> {
    let mut given = Given::default();
    while let Some(argument) = arguments.next() {
        let mut value = || {
            arguments
                .next()
                .ok_or_else(|| format!("{argument} needs a value"))
        };
        match argument.as_str() {
            "--list" => given.list = true,
            "--verify" => given.verify = true,
            "--here" => given.here = true,
            "--quick" => given.effort = Some(Effort::Quick),
            "--full" => given.effort = Some(Effort::Full),
            "--experiment" => given.experiment = Some(Experiment::parse(&value()?)?),
            "--round" => given.round = Some(number(&argument, &value()?)?),
            "--seed" => given.seed = Some(number(&argument, &value()?)?),
            "--case" => given.case = Some(number(&argument, &value()?)?),
            "--system" => given.systems.push(value()?),
            _ => return Err(format!("unknown argument '{argument}'; {USAGE}")),
        }
    }
    Ok(given)
}

fn number<T: std::str::FromStr>(name: &str, text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("{name} '{text}' is no number; a whole number from 0 is"))
}

fn chosen(wanted: &[String]) -> Result<Vec<&'static Known>, String> {
    // A full name means that system alone, although `time_and_io` is also the beginning of another's name.
    let matches = |known: &Known, text: &str| {
        if SYSTEMS.iter().any(|other| other.name == text) {
            known.name == text
        } else {
            known.name.contains(text)
        }
    };
    for text in wanted {
        if !SYSTEMS.iter().any(|known| matches(known, text)) {
            let names: Vec<_> = SYSTEMS.iter().map(|known| known.name).collect();
            return Err(format!(
                "--system '{text}' is part of no system's name; they are {}",
                names.join(", ")
            ));
        }
    }
    let takes =
        |known: &&Known| wanted.is_empty() || wanted.iter().any(|text| matches(known, text));
    Ok(SYSTEMS.iter().filter(takes).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn a_visit_takes_every_system_unless_told() {
        let Ok(Command::Visit(visit)) = parsed("--experiment allocs --round 1 --seed 2 --quick")
        else {
            panic!("no visit");
        };
        assert_eq!(visit.systems.len(), SYSTEMS.len());
        assert_eq!(visit.effort, Effort::Quick);
    }

    #[test]
    fn a_full_name_is_not_also_a_part_of_another() {
        let Ok(Command::Verify { systems }) =
            parsed("--verify --system original/tokio/time_and_io")
        else {
            panic!("no verification");
        };
        assert_eq!(systems.len(), 1);
        let Ok(Command::Verify { systems }) = parsed("--verify --system time_and") else {
            panic!("no verification");
        };
        assert_eq!(systems.len(), 2);
    }

    #[test]
    fn mistakes_name_the_value_and_what_would_be_right() {
        for (line, value, right) in [
            ("--experiment nosuch", "nosuch", "arm_cancel"),
            (
                "--verify --system nosuch",
                "nosuch",
                "original/tokio/time_only",
            ),
            ("--experiment allocs --round x", "'x'", "whole number"),
            (
                "--experiment allocs --round 1 --seed 1",
                "--quick",
                "--full",
            ),
            ("--fast", "--fast", "--experiment"),
        ] {
            let Err(mistake) = parsed(line) else {
                panic!("{line} was taken");
            };
            assert!(
                mistake.contains(value) && mistake.contains(right),
                "{mistake}"
            );
        }
    }
}
