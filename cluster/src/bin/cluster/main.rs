//! The `cluster` command: starts, inspects, disturbs and stops clusters.

mod args;
mod faults;
mod foreground;
mod kerberos;
mod secured;
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

/// Prints a line; ignores a closed standard output.
fn print_line(line: impl Display) {
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
            print_line(if keep { "stopped" } else { "stopped, all files removed" });
            Ok(())
        }
        Command::Status => status::print(&Cluster::attach(&directory)?).await,
        Command::KerberosCommand(command) => {
            kerberos::apply(&Cluster::attach(&directory)?, command).await
        }
        Command::FaultCommand(fault) => {
            faults::apply(&mut Cluster::attach(&directory)?, fault).await
        }
    }
}

async fn start(up: UpArgs, directory: PathBuf, named: bool) -> anyhow::Result<()> {
    let foreground = up.foreground;
    let start = Instant::now();
    let config = up.config(directory.clone());
    eprintln!("starting {}", describe(&config));
    let cluster = Cluster::start(config).await?;
    print_line(format!("serving after {:.1} s", start.elapsed().as_secs_f64()));
    print_line(format!("quorum     {}", cluster.client_quorum()));
    print_line(format!("masters    {}", cluster.masters().join(",")));
    secured::print(&cluster);
    for node in cluster.nodes() {
        let daemon = matches!(node, Node::OpenTsdb | Node::Tsd(_));
        if let Some(address) = cluster.address(node).filter(|_| daemon) {
            print_line(format!("{:<10} http://{address}", node.to_string()));
        }
    }
    print_line(format!("directory  {}", cluster.directory().display()));
    if foreground {
        return foreground::serve(cluster).await;
    }
    cluster.detach().context("the cluster cannot be detached")?;
    let option =
        if named { format!(" --directory {}", directory.display()) } else { String::new() };
    print_line(format!("to stop: cluster down{option}"));
    Ok(())
}

fn describe(config: &cluster::ClusterConfig) -> String {
    let count =
        |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    let mut parts =
        vec![format!("HBase {} with ZooKeeper", config.version), count(config.masters, "master")];
    if config.security.kerberos.is_some() {
        parts.insert(0, "a KDC".to_owned());
    }
    parts.push(count(config.region_servers, "region server"));
    if config.opentsdb {
        parts.push("OpenTSDB".to_owned());
    }
    if config.tsds > 0 {
        parts.push(count(config.tsds, "TSD"));
    }
    parts.join(", ")
}
