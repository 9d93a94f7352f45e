//! The `s3mq` binary: parses the command line and runs it.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    s3mq::cli::Cli::parse().run()
}
