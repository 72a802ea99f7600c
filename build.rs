//! Embeds the guest's own program, when `HMZ_GUEST` names it: `scripts/build.sh` builds it first. Without, `hmz` itself is
//! what a box is given, which is larger and otherwise the same.

use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    println!("cargo::rerun-if-env-changed=HMZ_GUEST");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(guest_embedded)");
    let Some(guest) = env::var_os("HMZ_GUEST").filter(|path| !path.is_empty()).map(PathBuf::from) else {
        return ExitCode::SUCCESS;
    };
    println!("cargo::rerun-if-changed={}", guest.display());
    let Some(out) = env::var_os("OUT_DIR").map(PathBuf::from) else {
        println!("cargo::error=this build script is run by cargo");
        return ExitCode::FAILURE;
    };
    if let Err(e) = std::fs::copy(&guest, out.join("guest")) {
        println!("cargo::error=HMZ_GUEST={}: {e}", guest.display());
        return ExitCode::FAILURE;
    }
    println!("cargo::rustc-cfg=guest_embedded");
    ExitCode::SUCCESS
}
