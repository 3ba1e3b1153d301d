//! JSON lines on standard output.
use serde_json::{Map, Value, json};

use crate::cases::{Case, Metric};
use crate::clock;

/// Samples of one metric, each with what one clock reading cost beside it.
#[derive(Default)]
pub struct Samples {
    values: Vec<f64>,
    clock_ns: Vec<f64>,
}

impl Samples {
    /// Adds a value and measures the clock now.
    pub fn add(&mut self, value: f64) {
        self.add_beside(value, clock::reading_ns());
    }

    /// Adds a value beside which the clock was measured already.
    pub fn add_beside(&mut self, value: f64, clock_ns: f64) {
        self.values.push(value);
        self.clock_ns.push(clock_ns);
    }

    /// Events of one run of a clock that was measured once.
    pub fn of_events(values: Vec<f64>) -> Self {
        let clock_ns = vec![clock::reading_ns(); values.len()];
        Samples { values, clock_ns }
    }
}

/// Where the rows of one system x case go.
pub struct Rows {
    pub service: &'static str,
    pub case: Case,
}

impl Rows {
    pub fn samples(&self, metric: Metric, samples: &Samples, note: &str) {
        self.write(metric, fields(samples, note, false));
    }

    /// Samples that are single events and no means over batches.
    pub fn events(&self, metric: Metric, samples: &Samples, note: &str) {
        self.write(metric, fields(samples, note, true));
    }

    pub fn skipped(&self, metrics: &[Metric], reason: &str) {
        for &metric in metrics {
            self.write(metric, json!({"skipped": reason}));
        }
    }

    /// What was measured must not be used.
    pub fn error(&self, metrics: &[Metric], reason: &str) {
        for &metric in metrics {
            self.write(metric, json!({"error": reason}));
        }
    }

    fn write(&self, (metric, unit): Metric, mut fields: Value) {
        fields["service"] = json!(self.service);
        fields["case"] = self.case.json();
        fields["metric"] = json!(metric);
        fields["unit"] = json!(unit);
        println!("{}", json!({"row": fields}));
    }
}

fn fields(samples: &Samples, note: &str, single_events: bool) -> Value {
    json!({
        "samples": rounded(&samples.values),
        "clock_ns": rounded(&samples.clock_ns),
        "note": note,
        "single_events": single_events,
    })
}

/// Six decimals: a nanosecond where the unit is a millisecond.
fn rounded(values: &[f64]) -> Vec<f64> {
    values
        .iter()
        .map(|value| (value * 1e6).round() / 1e6)
        .collect()
}

pub fn check(service: &str, name: &str, ok: bool, detail: &str) {
    println!(
        "{}",
        json!({"check": {"name": name, "service": service, "ok": ok, "detail": detail}})
    );
}

/// The versions in the lock file that this program was built with, and the compiler's.
pub fn versions() {
    let mut versions = Map::new();
    versions.insert("rustc".into(), json!(env!("RUSTC_VERSION")));
    for name in ["pingora-timeout", "tokio"] {
        versions.insert(name.into(), json!(locked_version(name)));
    }
    println!("{}", json!({"versions": versions}));
}

fn locked_version(name: &str) -> &'static str {
    let entry = format!("name = \"{name}\"");
    let mut lines = include_str!("../Cargo.lock").lines();
    lines
        .find(|line| *line == entry)
        .and_then(|_| lines.next())
        .and_then(|line| line.strip_prefix("version = \""))
        .and_then(|line| line.strip_suffix('"'))
        .unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_the_lock_file() {
        assert!(locked_version("tokio").starts_with("1."));
        assert_eq!(locked_version("no-such-crate"), "unknown");
    }
}
