//! Random requests, of all kinds that both daemons answer.

mod exp;
mod gexp;
mod misc;
mod query;
mod series;
mod write;

use crate::{data::Data, random::Random, request::Request};

/// The kind of a request, and the request.
pub(crate) fn next(data: &Data, number: u64, random: &mut Random) -> (&'static str, Request) {
    match random.below(100) {
        0..44 => ("query", query::request(data, random)),
        44..60 => ("exp", exp::request(data, random)),
        60..70 => ("gexp", gexp::request(data, random)),
        70..74 => ("last", series::last(data, random)),
        74..79 => ("lookup", series::lookup(data, random)),
        79..82 => ("suggest", series::suggest(data, random)),
        82..87 => ("annotation", write::annotation(data, number, random)),
        87..92 => ("put", write::put(data, number, random)),
        92..94 => ("telnet", write::telnet(data, number, random)),
        94..96 => ("uid", write::uid(data, number, random)),
        _ => ("misc", misc::request(random)),
    }
}
