//! The `s3mq` binary: parses the command line and runs it.

use std::process::ExitCode;

fn main() -> ExitCode {
    s3mq::cli::main()
}
