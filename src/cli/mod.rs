//! The command line: turns flags and environment into the validated configuration of the layer below, and what comes back
//! into lines and an exit code. The flags that several commands share are in [`crate::config`].

mod bench;
mod check;
mod checkpoint;
mod consumer;
mod failure;
mod faults;
pub(crate) mod fuzz;
pub mod given_file;
mod merge;
mod preload;
mod producer;
mod role;
mod serve;
pub mod signals;
pub mod storage;
mod store_model;

use std::process::ExitCode;
use std::sync::LazyLock;

use anstream::{AutoStream, ColorChoice};
use clap::builder::BoolishValueParser;
use clap::{Arg, ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand};

pub use crate::console::say;
pub use failure::Failure;
pub use role::interrupted;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::console;
use crate::exit::Exit;
use crate::first_process;

/// s3mq's version and the commit it was built from.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("S3MQ_COMMIT"), ")");

/// Measures a Delta Lake table on S3 or MinIO as a message queue.
///
/// Every option can also be given as the environment variable that its help names; a flag goes before
/// the variable, and an empty variable counts as not set. RUST_LOG chooses what is logged to standard
/// error [default: s3mq=warn]. Exit codes: 0 all well, 1 runtime failure, 2 bad usage or
/// configuration, 3 committed messages were lost, unreadable, doubled or reordered, 130 interrupted.
#[derive(Debug, Parser)]
#[command(name = "s3mq", version = VERSION, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(bench::Args),
    Producer(producer::Args),
    Consumer(consumer::Args),
    Serve(serve::Args),
    Check(check::Args),
    Preload(preload::Args),
    // A producer starts it, people don't.
    #[command(hide = true)]
    Checkpoint(checkpoint::Args),
    Merge(merge::Args),
}

/// What holds for the options of every command.
fn common(option: Arg) -> Arg {
    let variable = option.get_long().map(|long| format!("S3MQ_{}", long.to_uppercase().replace('-', "_")));
    let is_empty = |name: &String| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let option = match variable.filter(|name| !is_empty(name)) {
        // For as long as the definition, of which a process has one.
        Some(name) => option.env(&*name.leak()),
        None => option,
    };
    match option.get_action() {
        // A variable may also say 1 or 0, yes or no, on or off.
        ArgAction::SetTrue => option.value_parser(BoolishValueParser::new()),
        // What -1 is wrong for should say so, rather than that there is no option `-1`.
        ArgAction::Set => option.allow_negative_numbers(true),
        _ => option,
    }
}

/// The options of another program with options like ours; where they are wrong, it ends.
pub fn parse<Args: Parser>() -> Args {
    let matches = Args::command().mut_args(common).get_matches();
    Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
}

/// Reads the command line and the variables, and runs the command that they name.
pub fn main() -> ExitCode {
    // A child is started by way of /proc/self/exe, and would be `exe` in a list of processes.
    let _ = std::fs::write("/proc/self/comm", "s3mq");
    if first_process::is_this() {
        return first_process::run().unwrap_or_else(|error| {
            exit_code(Err(Failure::runtime(format!("cannot run as the first process: {error}"))))
        });
    }
    raise_file_limit();
    match Cli::definition().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli.run(),
        // Help, the version, or what is wrong.
        Err(error) => {
            console::show(&error);
            exit_code(Ok(if error.use_stderr() { Exit::Usage } else { Exit::Ok }))
        }
    }
}

/// Takes the limit of open files that the system leaves to us. Each connection is one, and shells set fewer.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// Prints a failure. Results that nobody can read are one too; of another failure, its own line says more.
fn exit_code(outcome: Result<Exit, Failure>) -> ExitCode {
    let outcome = match outcome {
        Ok(Exit::Ok) => console::all_said().map_err(Failure::runtime).map(|()| Exit::Ok),
        outcome => outcome,
    };
    let exit = outcome.unwrap_or_else(|failure| {
        console::complain(&failure.message);
        failure.exit
    });
    ExitCode::from(exit.code())
}

impl Cli {
    /// The arguments of all commands.
    fn definition() -> clap::Command {
        static DEFINITION: LazyLock<clap::Command> =
            LazyLock::new(|| Cli::command().mut_subcommands(|command| command.mut_args(common)));
        DEFINITION.clone()
    }

    fn run(self) -> ExitCode {
        execute(async {
            match self.command {
                Command::Bench(args) => bench::run(args).await,
                Command::Producer(args) => producer::run(args).await,
                Command::Consumer(args) => consumer::run(args).await,
                Command::Serve(args) => serve::run(args).await,
                Command::Check(args) => check::run(args).await,
                Command::Checkpoint(args) => checkpoint::run(args).await,
                Command::Preload(args) => preload::run(args).await,
                Command::Merge(args) => merge::run(args),
            }
        })
    }
}

/// Runs a command and prints its failure, if it has one.
pub fn execute(command: impl Future<Output = Result<Exit, Failure>> + Send + 'static) -> ExitCode {
    start_logging();
    let exit = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::runtime(format!("cannot start the runtime: {error}")))
        .and_then(|runtime| {
            // On a worker and not on this thread, which would have to be woken for every answer.
            let exit = runtime
                .block_on(runtime.spawn(command))
                .unwrap_or_else(|error| Err(Failure::runtime(format!("a defect of s3mq: {error}"))));
            // Left to the end of the process, which a thread that waits for the disk or the network must not
            // keep. Shutting down would drop tasks that such threads wait for, and delta-rs's kernel panics.
            std::mem::forget(runtime);
            exit
        });
    exit_code(exit)
}

/// Logs go to standard error; `RUST_LOG` chooses what is logged, by default warnings of ours.
fn start_logging() {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("s3mq=warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // A terminal that shows colours, where they are wanted (NO_COLOR, TERM=dumb, CLICOLOR).
        .with_ansi(AutoStream::choice(&std::io::stderr()) != ColorChoice::Never)
        .with_target(false)
        // Where standard error can't be written, it would say so there, and panic over it.
        .log_internal_errors(false)
        .init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_are_well_defined() {
        Cli::definition().debug_assert();
    }

    /// The page has them all, with the defaults that they have.
    #[test]
    fn every_deadline_is_in_the_table_of_its_page() {
        let page = include_str!("../../docs/timeouts.md");
        let mut deadlines = 0;
        for command in Cli::command().get_subcommands() {
            for argument in command.get_arguments() {
                let long = argument.get_long().unwrap_or_default();
                if !long.ends_with("-timeout-seconds") && long != "grace-seconds" {
                    continue;
                }
                deadlines += 1;
                let default = argument.get_default_values()[0].to_string_lossy();
                let row = format!("\n| `--{long}` | {default} | ");
                let table = page.split("## Every deadline").nth(1).unwrap();
                assert!(table.contains(&row), "{}: no row {row}", command.get_name());
            }
        }
        assert!(deadlines > 10);
    }
}
