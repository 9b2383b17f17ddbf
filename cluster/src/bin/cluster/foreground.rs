//! A cluster that ends with its command.

use std::{io, thread, time::Duration};

use anyhow::bail;
use clap::Parser;
use cluster::{Cluster, Node};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use crate::{args::Order, faults, say, status};

/// Carries orders out until there are no more, or the command is interrupted; stops the cluster then.
pub(crate) async fn serve(mut cluster: Cluster) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut lines = lines();
    say("orders are taken from standard input: help lists them, quit or ^C stops the cluster");
    loop {
        let line = tokio::select! {
            line = lines.recv() => line,
            _ = interrupt.recv() => None,
            _ = terminate.recv() => None,
        };
        let Some(line) = line else { break };
        match Order::try_parse_from(line.split_whitespace()) {
            Ok(Order::Quit) => break,
            Ok(order) => {
                if let Err(error) = carry_out(&mut cluster, order).await {
                    eprintln!("{error:#}");
                }
            }
            Err(_) if line.trim().is_empty() => {}
            Err(error) => error.print()?,
        }
    }
    cluster.down(false).await?;
    say("stopped, nothing is left");
    Ok(())
}

/// Lines of standard input, read by a thread that nobody has to wait for.
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

async fn carry_out(cluster: &mut Cluster, order: Order) -> anyhow::Result<()> {
    let links = cluster.links();
    let linked = |node: Node| if links.has(node) { Ok(node) } else { bail!("{node} has no link") };
    match order {
        Order::Fault(fault) => return faults::apply(cluster, fault).await,
        Order::Status => return status::print(cluster).await,
        Order::Cut { node } => links.cut(linked(node)?),
        Order::Refuse { node } => links.refuse(linked(node)?),
        Order::Break { node } => links.break_connections(linked(node)?),
        Order::Delay { node, milliseconds } => {
            links.delay(linked(node)?, Duration::from_millis(milliseconds));
        }
        Order::Mend { node } => links.mend(linked(node)?),
        Order::Quit => return Ok(()),
    }
    say("done");
    Ok(())
}
