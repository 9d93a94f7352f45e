//! See [`crate::fuzz`].

use clap::{FromArgMatches, Parser};

use super::Cli;
use super::delay::DelayArgs;
use s3mq_server::Delays;

/// Reads a command line and runs nothing.
///
/// # Errors
/// What clap says of it.
pub fn command_line(arguments: &[&str]) -> Result<(), String> {
    let matches = Cli::definition().try_get_matches_from(["s3mq"].iter().chain(arguments));
    matches.and_then(|matches| Cli::from_arg_matches(&matches)).map(drop).map_err(|error| error.to_string())
}

/// Reads the value of `--delay`.
///
/// # Errors
/// What is wrong with it.
pub fn delays(text: &str) -> Result<Delays, String> {
    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        delay: DelayArgs,
    }
    let read = Only::try_parse_from(["s3mq".to_owned(), format!("--delay={text}")]);
    read.map_err(|error| error.to_string())?.delay.delays().map_err(|failure| failure.message)
}
