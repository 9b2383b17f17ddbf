//! The `cluster` command.

mod args;
mod faults;
mod foreground;
mod status;

use std::{
    fmt::Display,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
    time::Instant,
};

use anyhow::Context;
use clap::Parser;
use cluster::{Cluster, Node, default_directory};

use crate::args::{Cli, Command, UpArgs};

#[tokio::main]
async fn main() -> ExitCode {
    match run(Cli::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cluster: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a line. Who does not read it does not stop a cluster by that.
fn say(line: impl Display) {
    let _ = writeln!(io::stdout(), "{line}");
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    let directory = match &cli.directory {
        Some(directory) => directory.clone(),
        None => default_directory()?,
    };
    match cli.command {
        Command::Up(up) => start(up, directory, cli.directory.is_some()).await,
        Command::Down { keep } => {
            Cluster::attach(&directory)?.down(keep).await?;
            say(if keep { "stopped" } else { "stopped, nothing is left" });
            Ok(())
        }
        Command::Status => status::print(&Cluster::attach(&directory)?).await,
        Command::Fault(fault) => faults::apply(&mut Cluster::attach(&directory)?, fault).await,
    }
}

async fn start(up: UpArgs, directory: PathBuf, named: bool) -> anyhow::Result<()> {
    let foreground = up.foreground;
    let start = Instant::now();
    let config = up.config(directory.clone());
    eprintln!("starting {}", what(&config));
    let cluster = Cluster::start(config).await?;
    say(format!("serving after {:.1} s", start.elapsed().as_secs_f64()));
    say(format!("quorum     {}", cluster.quorum()));
    for node in cluster.nodes() {
        let daemon = matches!(node, Node::OpenTsdb | Node::Tsd(_));
        if let Some(address) = cluster.address(node).filter(|_| daemon) {
            say(format!("{:<10} http://{address}", node.to_string()));
        }
    }
    say(format!("directory  {}", cluster.directory().display()));
    if foreground {
        return foreground::serve(cluster).await;
    }
    cluster.leave().context("the cluster cannot be left alone")?;
    let option =
        if named { format!(" --directory {}", directory.display()) } else { String::new() };
    say(format!("stop it by: cluster down{option}"));
    Ok(())
}

fn what(config: &cluster::ClusterConfig) -> String {
    let mut parts = vec!["ZooKeeper".to_owned(), "a master".to_owned()];
    let count =
        |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    parts.push(count(config.region_servers, "region server"));
    if config.opentsdb {
        parts.push("OpenTSDB".to_owned());
    }
    if config.tsds > 0 {
        parts.push(count(config.tsds, "TSD"));
    }
    parts.join(", ")
}
