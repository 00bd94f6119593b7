//! The command-line tool `plinth`.
//!
//! Each subcommand is a module. [`output`] has the shared formats, and [`failure`] the exit statuses. The tool is
//! safe code over the crate's public modules. It prints the same information as text or as JSON.

#![forbid(unsafe_code)]

mod doctor;
mod failure;
mod info;
mod libraries;
mod manual;
mod output;
mod replay;
mod settings;
mod top;
mod topology;
mod view;

use clap::{Parser, Subcommand, ValueEnum};
use failure::Result;
use output::Output;
use plinth::internal::runtime::{self, DeviceKind};
use std::process::ExitCode;

const STATUSES: &str = "\
Exit status:
  0  success, and no problem was found
  1  doctor found a problem; replay ran out of memory
  2  invalid arguments, settings or file
  3  the requested operation failed; the reason is on standard error";

/// Shows GPUs, their activity, problems of the installation, and the use of GPU memory
#[derive(Parser)]
#[command(name = "plinth", version, after_help = STATUSES, disable_help_subcommand = true)]
struct Arguments {
    /// Write JSON instead of text
    #[arg(long, global = true)]
    json: bool,
    /// The kind of device; without it PLINTH_DEVICE selects the kind, and if that is not set, auto
    #[arg(long, global = true, value_enum)]
    device: Option<Kind>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// NVIDIA GPUs
    Cuda,
    /// The built-in device, on the CPU
    Host,
    /// GPUs if there are any, otherwise the host device
    Auto,
}

#[derive(Subcommand)]
enum Command {
    /// Show driver, devices, peer access, libraries and settings
    Info(info::Options),
    /// Show the activity of the devices and their processes, in an interactive screen
    #[command(after_help = top::keys())]
    Top(top::Options),
    /// Diagnose this machine's CUDA installation and say what to do
    Doctor(doctor::Options),
    /// Replay a recorded trace of allocations through the allocator
    Replay(replay::Options),
    /// Analyse a snapshot of the allocator
    View(view::Options),
    /// Write the completions of a shell on standard output
    Completions(manual::Completions),
    /// Write the manual pages into a folder
    ManPages(manual::ManPages),
}

/// Applies `--device`. Without it and without PLINTH_DEVICE the tool uses the available kind.
fn choose_device(requested: Option<Kind>) -> Result<()> {
    let kind = match requested {
        Some(Kind::Cuda) => DeviceKind::Cuda,
        Some(Kind::Host) => DeviceKind::Host,
        Some(Kind::Auto) => DeviceKind::Auto,
        None if std::env::var_os("PLINTH_DEVICE").is_some_and(|value| !value.is_empty()) => return Ok(()),
        None => DeviceKind::Auto,
    };
    Ok(runtime::choose_kind(kind)?)
}

fn run(arguments: Arguments) -> Result<()> {
    let output = Output::new(arguments.json);
    choose_device(arguments.device)?;
    match arguments.command {
        Command::Info(options) => info::run(&options, &output),
        Command::Top(options) => top::run(&options, &output),
        Command::Doctor(options) => doctor::run(&options, arguments.device, &output),
        Command::Replay(options) => replay::run(&options, arguments.device == Some(Kind::Cuda), &output),
        Command::View(options) => view::run(&options, &output),
        Command::Completions(options) => manual::completions(&options, &output),
        Command::ManPages(options) => manual::man_pages(&options),
    }
}

fn main() -> ExitCode {
    // clap ends the process with status 2 for invalid arguments.
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
