//! Random requests of all kinds that both daemons support.

mod delete;
mod error;
mod exp;
mod gexp;
mod graph;
mod misc;
mod query;
mod rollup;
mod series;
mod write;

use crate::differential::{data::Data, random::Random, request::Request};

/// The kind of a request, and the request.
pub(crate) fn next(data: &Data, number: u64, random: &mut Random) -> (&'static str, Request) {
    match random.below(200) {
        0..54 => ("query", query::request(data, random)),
        54..64 => ("graph", graph::request(data, random)),
        64..80 => ("error", error::request(data, random)),
        80..90 => ("rollup", rollup::query(data, random)),
        90..98 => ("histogram", rollup::histogram_query(data, random)),
        98..104 => ("rollup put", rollup::put(data, number, random)),
        104..112 => ("delete", delete::request(data, number, random)),
        112..132 => ("exp", exp::request(data, random)),
        132..144 => ("gexp", gexp::request(data, random)),
        144..150 => ("last", series::last(data, random)),
        150..156 => ("lookup", series::lookup(data, random)),
        156..160 => ("suggest", series::suggest(data, random)),
        160..170 => ("annotation", write::annotation(data, number, random)),
        170..178 => ("put", write::put(data, number, random)),
        178..186 => ("telnet", write::telnet(data, number, random)),
        186..190 => ("uid", write::uid(data, number, random)),
        _ => ("misc", misc::request(random)),
    }
}
