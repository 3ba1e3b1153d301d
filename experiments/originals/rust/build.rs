//! Hands the version of the compiler to the program, which reports it beside its figures.
use std::env;
use std::process::Command;

fn main() {
    let rustc = env::var("RUSTC").expect("cargo names the compiler");
    let output = Command::new(rustc)
        .arg("--version")
        .output()
        .expect("the compiler says its version");
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.split_whitespace().nth(1).unwrap_or("unknown");
    println!("cargo:rustc-env=RUSTC_VERSION={version}");
    println!("cargo:rerun-if-changed=build.rs");
}
