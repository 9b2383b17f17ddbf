//! The `cluster` command.

mod args;
mod faults;
mod foreground;
mod status;

use std::{path::PathBuf, process::ExitCode, time::Instant};

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

async fn run(cli: Cli) -> anyhow::Result<()> {
    let directory = match &cli.directory {
        Some(directory) => directory.clone(),
        None => default_directory()?,
    };
    match cli.command {
        Command::Up(up) => start(up, directory, cli.directory.is_some()).await,
        Command::Down { keep } => {
            Cluster::attach(&directory)?.down(keep).await?;
            println!("stopped{}", if keep { "" } else { ", nothing is left" });
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
    println!("serving after {:.1} s", start.elapsed().as_secs_f64());
    println!("quorum     {}", cluster.quorum());
    for node in cluster.nodes() {
        let daemon = matches!(node, Node::OpenTsdb | Node::Tsd(_));
        if let Some(address) = cluster.address(node).filter(|_| daemon) {
            println!("{:<10} http://{address}", node.to_string());
        }
    }
    println!("directory  {}", cluster.directory().display());
    if foreground {
        return foreground::serve(cluster).await;
    }
    cluster.leave().context("the cluster cannot be left alone")?;
    let option =
        if named { format!(" --directory {}", directory.display()) } else { String::new() };
    println!("stop it by: cluster down{option}");
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
