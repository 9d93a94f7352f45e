//! Puts into the results what they were measured with: the compiler, its flags and the version of `object_store`, which
//! doesn't tell it itself.

use std::process::Command;

fn main() {
    println!("cargo:rustc-env=S3MQ_BUILD_RUSTC={}", rustc().unwrap_or_else(|| "unknown".to_owned()));
    let flags = std::env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    println!("cargo:rustc-env=S3MQ_BUILD_RUSTFLAGS={}", flags.replace('\u{1f}', " "));
    println!(
        "cargo:rustc-env=S3MQ_BUILD_OBJECT_STORE={}",
        object_store().unwrap_or_else(|| "unknown".to_owned())
    );
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=../../Cargo.lock");
}

fn rustc() -> Option<String> {
    let output = Command::new(std::env::var_os("RUSTC")?).arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The version of `object_store` that this package depends on; there may be others below it.
fn object_store() -> Option<String> {
    let lock = std::fs::read_to_string("../../Cargo.lock").ok()?;
    let package = |name: &str| {
        let start = format!("name = \"{name}\"\n");
        lock.split("[[package]]\n").find(move |text| text.starts_with(&start))
    };
    // A dependency of which there are several versions is listed with its own.
    let listed = package("s3mq")?.lines().find_map(|line| line.trim().strip_prefix("\"object_store"))?;
    match listed.trim_end_matches("\",").trim() {
        "" => Some(package("object_store")?.split_once("version = \"")?.1.split_once('"')?.0.to_owned()),
        version => Some(version.to_owned()),
    }
}
