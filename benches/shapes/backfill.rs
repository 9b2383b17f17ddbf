//! Measures queries during a backfill: earlier points of the same series are sent, and merged.

use std::{array::from_fn, thread};

use tsd_testkit::process;

use crate::{BothFigures, Options, Server, data_set::DataSet, report::Figures};

/// States of the store in which the queries run.
const STATES: [&str; 3] = ["while sent", "right after", "merged"];

/// Figures of the queries of a set, by state.
type StateFigures = [Vec<Figures>; STATES.len()];

/// Writes the earlier points to both servers, one after the other, during the queries of a set. Prints their times, and
/// the ratio to the times without a backfill.
pub(crate) fn measure(
    options: &Options,
    set: &DataSet,
    earlier: &DataSet,
    (ours, other): (&dyn Server, Option<&dyn Server>),
    quiet: &[BothFigures],
) {
    println!();
    println!("{}, beside {} points of the days before", set.name, earlier.points());
    println!();
    println!("| state | query | ms | × quiet | VM ms | × quiet |");
    println!("|---|---|---|---|---|---|");
    let ours = beside(options, set, earlier, ours);
    let theirs = other.map(|server| beside(options, set, earlier, server));
    for (at, state) in STATES.iter().enumerate() {
        for (number, (shape, quiet)) in set.shapes.iter().zip(quiet).enumerate() {
            let cells = |figures: &StateFigures, quiet: &Figures| {
                let ms = figures[at][number].millis();
                format!("{ms:.2} | {:.2}", ms / quiet.millis())
            };
            let theirs = theirs.as_ref().zip(quiet.1.as_ref());
            let theirs = theirs.map_or(" | ".to_owned(), |(theirs, quiet)| cells(theirs, quiet));
            println!("| {state} | {} | {} | {theirs} |", shape.name, cells(&ours, &quiet.0));
        }
    }
}

/// Runs the queries on a server while it receives the earlier points, right after, and when it is idle again.
fn beside(
    options: &Options,
    set: &DataSet,
    earlier: &DataSet,
    server: &dyn Server,
) -> StateFigures {
    let mut figures: StateFigures = from_fn(|_| Vec::new());
    for of_state in &mut figures {
        of_state.resize_with(set.shapes.len(), Figures::default);
    }
    let round = |figures: &mut [Figures]| {
        for (shape, figures) in set.shapes.iter().zip(figures) {
            figures.add(server, set, shape);
        }
    };
    let [sent, after, merged] = &mut figures;
    let telnet = server.telnet();
    thread::scope(|scope| {
        let writing = scope.spawn(move || earlier.write(telnet));
        round(sent);
        while !writing.is_finished() {
            round(sent);
        }
    });
    for _ in 0..options.runs {
        round(after);
    }
    process::wait_until_idle(server.pid());
    for _ in 0..options.runs {
        round(merged);
    }
    figures
}
