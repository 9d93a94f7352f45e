//! Puts into the results what they were measured with: the compiler, its flags and the version of `object_store`, which
//! has no constant for it.

use std::process::Command;

fn main() {
    let unknown = || "unknown".to_owned();
    println!("cargo:rustc-env=S3MQ_BUILD_RUSTC={}", rustc().unwrap_or_else(unknown));
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    println!("cargo:rustc-env=S3MQ_BUILD_RUSTFLAGS={}", flags.replace('\u{1f}', " "));
    println!("cargo:rustc-env=S3MQ_BUILD_OBJECT_STORE={}", object_store().unwrap_or_else(unknown));
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../../Cargo.lock");
}

fn rustc() -> Option<String> {
    let output = Command::new(std::env::var_os("RUSTC")?).arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The version of `object_store`, or all of them where several are built in.
fn object_store() -> Option<String> {
    let lock = std::fs::read_to_string("../../Cargo.lock").ok()?;
    let packages = lock.split("name = \"object_store\"\nversion = \"").skip(1);
    let versions: Option<Vec<_>> = packages.map(|package| Some(package.split_once('"')?.0)).collect();
    versions.filter(|versions| !versions.is_empty()).map(|versions| versions.join(", "))
}
