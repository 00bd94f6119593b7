//! Shell completions and manual pages, generated from the definition of the arguments.

use super::{
    Arguments,
    failure::{Failure, Result},
    output::Output,
};
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::path::PathBuf;

/// The options of `plinth completions`.
#[derive(Args)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// The options of `plinth man-pages`.
#[derive(Args)]
pub struct ManPages {
    /// The folder for the pages, which exists
    folder: PathBuf,
}

/// Writes the completions of a shell on standard output.
pub fn completions(options: &Completions, output: &Output) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Arguments::command(), "plinth", &mut script);
    output.bytes(&script)
}

/// Writes the manual pages: plinth.1, and one for each subcommand.
pub fn man_pages(options: &ManPages) -> Result<()> {
    clap_mangen::generate_to(Arguments::command(), &options.folder)
        .map_err(|error| Failure::file(&options.folder, error))
}
