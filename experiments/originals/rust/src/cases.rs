//! The experiments, their cases and their metrics: the names under which rows meet those of the other programs.
use serde_json::{Value, json};

use crate::options::Effort;
use crate::systems::Known;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Experiment {
    ReadyPath,
    ArmCancel,
    Allocs,
    Scaling,
    Accuracy,
    Memory,
    Soak,
}

const EXPERIMENTS: [Experiment; 7] = [
    Experiment::ReadyPath,
    Experiment::ArmCancel,
    Experiment::Allocs,
    Experiment::Scaling,
    Experiment::Accuracy,
    Experiment::Memory,
    Experiment::Soak,
];

/// A metric and its unit.
pub type Metric = (&'static str, &'static str);

impl Experiment {
    pub fn parse(text: &str) -> Result<Self, String> {
        EXPERIMENTS
            .into_iter()
            .find(|experiment| experiment.name() == text)
            .ok_or_else(|| {
                let names = EXPERIMENTS.map(Experiment::name).join(", ");
                format!("unknown experiment '{text}'; known are {names}")
            })
    }

    pub fn name(self) -> &'static str {
        match self {
            Experiment::ReadyPath => "ready_path",
            Experiment::ArmCancel => "arm_cancel",
            Experiment::Allocs => "allocs",
            Experiment::Scaling => "scaling",
            Experiment::Accuracy => "accuracy",
            Experiment::Memory => "memory",
            Experiment::Soak => "soak",
        }
    }

    pub fn metrics(self) -> &'static [Metric] {
        match self {
            Experiment::ReadyPath => &[("above_bare", "ns/op"), ("poll", "ns/op")],
            Experiment::ArmCancel | Experiment::Scaling => {
                &[("arm_cancel", "ns/op"), ("process_cpu", "ns/op")]
            }
            Experiment::Allocs => &[("allocations", "1/op"), ("bytes", "B/op")],
            Experiment::Accuracy => &[("callback_start", "ms")],
            Experiment::Memory => &[("held", "B"), ("rss", "B")],
            Experiment::Soak => &[("completions", "1"), ("stopped_tasks", "1")],
        }
    }

    /// The cases of one system, always in the same order.
    pub fn cases(self, system: &Known, effort: Effort) -> Vec<Case> {
        match self {
            Experiment::ReadyPath => vec![Case::Ready],
            Experiment::ArmCancel => {
                let paces: &[bool] = if system.lazy_cancel {
                    &[false, true]
                } else {
                    &[false]
                };
                paces
                    .iter()
                    .flat_map(|&paced| {
                        [0, 10_000, 1_000_000].map(|population| Case::Pairs { population, paced })
                    })
                    .collect()
            }
            Experiment::Allocs => vec![Case::Allocations],
            Experiment::Scaling => [1, 2, 4, 8].map(Case::Workers).to_vec(),
            Experiment::Accuracy => [1, 5, 10, 25, 100].map(Case::Lateness).to_vec(),
            Experiment::Memory => vec![Case::Cancelled(effort.pick(200_000, 1_000_000))],
            Experiment::Soak if system.soaked => vec![Case::Soak],
            Experiment::Soak => vec![],
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Case {
    Ready,
    Pairs {
        population: usize,
        paced: bool,
    },
    Allocations,
    Workers(usize),
    /// In milliseconds.
    Lateness(u64),
    Cancelled(usize),
    Soak,
}

/// Pairs in a burst of the paced regime; there is a burst each millisecond.
pub const PAIRS_PER_MS: u64 = 100;
pub const SOAK_WORKERS: usize = 8;
pub const SOAK_TASKS: usize = 50_000;

impl Case {
    pub fn json(self) -> Value {
        match self {
            Case::Ready => json!({"kind": "ready", "duration_ms": 1000}),
            Case::Pairs {
                population,
                paced: false,
            } => json!({
                "kind": "article", "population": population, "duration_ms": 1000, "regime": "saturating",
            }),
            Case::Pairs {
                population,
                paced: true,
            } => json!({
                "kind": "article", "population": population, "duration_ms": 1000, "regime": "paced",
                "pairs_per_ms": PAIRS_PER_MS,
            }),
            Case::Allocations => json!({"kind": "article", "duration_ms": 1000}),
            Case::Workers(workers) => json!({"workers": workers}),
            Case::Lateness(duration_ms) => json!({"duration_ms": duration_ms}),
            Case::Cancelled(timers) => {
                json!({"kind": "cancelled", "timers": timers, "duration_ms": 60_000})
            }
            Case::Soak => json!({"tasks": SOAK_TASKS, "workers": SOAK_WORKERS}),
        }
    }
}
