//! See [`crate::fuzz`].

use clap::FromArgMatches;

use super::Cli;

/// Reads a command line and runs nothing.
///
/// # Errors
/// What clap says of it.
pub fn command_line(arguments: &[&str]) -> Result<(), String> {
    let matches = Cli::definition().try_get_matches_from(["s3mq"].iter().chain(arguments));
    matches.and_then(|matches| Cli::from_arg_matches(&matches)).map(drop).map_err(|error| error.to_string())
}
