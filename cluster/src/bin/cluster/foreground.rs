//! A cluster in the foreground, which stops with its command.

use std::{io, thread, time::Duration};

use anyhow::bail;
use clap::Parser;
use cluster::{Cluster, Node};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use crate::{args::ForegroundCommand, faults, kerberos, print_line, status};

/// Runs commands from standard input until its end or a signal; then stops the cluster.
pub(crate) async fn serve(mut cluster: Cluster) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut lines = lines();
    print_line(
        "reading commands from standard input: help lists them, quit or ^C stops the cluster",
    );
    loop {
        let line = tokio::select! {
            line = lines.recv() => line,
            _ = interrupt.recv() => None,
            _ = terminate.recv() => None,
        };
        let Some(line) = line else { break };
        match ForegroundCommand::try_parse_from(line.split_whitespace()) {
            Ok(ForegroundCommand::Quit) => break,
            Ok(command) => {
                if let Err(error) = run(&mut cluster, command).await {
                    eprintln!("{error:#}");
                }
            }
            Err(_) if line.trim().is_empty() => {}
            Err(error) => error.print()?,
        }
    }
    cluster.down(false).await?;
    print_line("stopped, all files removed");
    Ok(())
}

/// Lines of standard input, read by a thread because the read cannot be cancelled.
fn lines() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(1);
    thread::spawn(move || {
        for line in io::stdin().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                break;
            }
        }
    });
    lines
}

async fn run(cluster: &mut Cluster, command: ForegroundCommand) -> anyhow::Result<()> {
    let links = cluster.links();
    let linked = |node: Node| if links.has(node) { Ok(node) } else { bail!("{node} has no link") };
    match command {
        ForegroundCommand::KerberosCommand(command) => {
            return kerberos::apply(cluster, command).await;
        }
        ForegroundCommand::FaultCommand(fault) => return faults::apply(cluster, fault).await,
        ForegroundCommand::Status => return status::print(cluster).await,
        ForegroundCommand::Cut { node } => links.cut(linked(node)?),
        ForegroundCommand::Refuse { node } => links.refuse(linked(node)?),
        ForegroundCommand::Break { node } => links.break_connections(linked(node)?),
        ForegroundCommand::Delay { node, milliseconds } => {
            links.delay(linked(node)?, Duration::from_millis(milliseconds));
        }
        ForegroundCommand::Restore { node } => links.restore(linked(node)?),
        ForegroundCommand::Quit => return Ok(()),
    }
    print_line("done");
    Ok(())
}
