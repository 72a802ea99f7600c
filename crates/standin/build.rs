//! Builds the stand-in, which is no target of cargo's: it has no standard library and flags of its own.

use std::env;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/standin");
    println!("cargo::rerun-if-changed=src/protocol.rs");
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    if arch != "x86_64" {
        println!("cargo::error=the stand-in is written for x86_64 only, not for {arch}");
        return ExitCode::FAILURE;
    }
    let (Some(rustc), Some(out), Some(target)) = (env::var_os("RUSTC"), env::var_os("OUT_DIR"), env::var_os("TARGET")) else {
        println!("cargo::error=this build script is run by cargo");
        return ExitCode::FAILURE;
    };
    let mut command = Command::new(rustc);
    command.args(["src/standin/main.rs", "--crate-name", "standin", "--crate-type", "bin", "--edition", "2024"]);
    command.arg("--target").arg(target).arg("-o").arg(PathBuf::from(out).join("standin"));
    for flag in ["panic=abort", "opt-level=s", "relocation-model=static", "strip=symbols", "target-feature=+crt-static"] {
        command.args(["-C", flag]);
    }
    for flag in
        ["-nostartfiles", "-nostdlib", "-static", "-no-pie", "-Wl,--build-id=none", "-Wl,-z,norelro", "-Wl,-z,noseparate-code"]
    {
        command.arg("-C").arg(format!("link-arg={flag}"));
    }
    command.args(["-D", "warnings"]);
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(status) => {
            println!("cargo::error=the stand-in does not build: {status}");
            ExitCode::FAILURE
        }
        Err(e) => {
            println!("cargo::error=the compiler cannot be run: {e}");
            ExitCode::FAILURE
        }
    }
}
