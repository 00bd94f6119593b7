//! `plinth`: what the library knows, asked from the command line.
//!
//! A file a subcommand. What they share is in [`output`], how they end in [`failure`]. The tool is safe code over the crate's
//! public modules, and prints as text what it would give a program as JSON.

#![forbid(unsafe_code)]

mod doctor;
mod failure;
mod info;
mod libraries;
mod output;
mod replay;
mod settings;
mod top;
mod topology;
mod view;

use clap::{Parser, Subcommand, ValueEnum};
use failure::Result;
use output::Output;
use plinth::runtime::{self, DeviceKind};
use std::process::ExitCode;

const STATUSES: &str = "\
Exit status:
  0  done, and nothing is wrong
  1  doctor found what stops work; replay ran out of memory
  2  arguments, settings or a file that make no sense
  3  what was asked for could not be done; the reason is on standard error";

/// GPUs as plinth sees them: what is there, what it does, what is wrong, and what its memory is used for.
#[derive(Parser)]
#[command(name = "plinth", version, after_help = STATUSES, disable_help_subcommand = true)]
struct Arguments {
    /// Write JSON, for programs
    #[arg(long, global = true)]
    json: bool,
    /// The kind of device; without it PLINTH_DEVICE says it, and where that is not set it is auto
    #[arg(long, global = true, value_enum)]
    device: Option<Kind>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// NVIDIA GPUs
    Cuda,
    /// The device that is built into the library, on the CPU
    Host,
    /// GPUs where there are any, else the host device
    Auto,
}

#[derive(Subcommand)]
enum Command {
    /// What is here: driver, devices, links, libraries, settings
    Info,
    /// What the devices do, refreshed in place
    Top(top::Options),
    /// What is wrong with this machine's CUDA, and what to do about it
    Doctor(doctor::Options),
    /// Replay a recorded trace of allocations through the allocator
    Replay(replay::Options),
    /// What a snapshot of the allocator says
    View(view::Options),
}

/// Follows `--device`; without it and without the variable, a tool shows what there is.
fn choose_device(asked: Option<Kind>) -> Result<()> {
    let kind = match asked {
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
        Command::Info => info::run(&output),
        Command::Top(options) => top::run(&options, &output),
        Command::Doctor(options) => doctor::run(&options, arguments.device, &output),
        Command::Replay(options) => replay::run(&options, &output),
        Command::View(options) => view::run(&options, &output),
    }
}

fn main() -> ExitCode {
    // Wrong arguments end with 2 by themselves.
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.tell(),
    }
}
