//! `/api/query/gexp`.

use super::query::{aggregator, range};
use crate::differential::{data::Data, random::Random, request::Request};

fn series(data: &Data, random: &mut Random) -> String {
    let mut text = format!("{}:", aggregator(random));
    if random.chance(40) {
        text.push_str(random.pick(&[
            "1m-avg:",
            "10s-sum:",
            "1h-max:",
            "1h-avg-nan:",
            "30s-count:",
        ]));
    }
    if random.chance(15) {
        text.push_str("rate:");
    }
    text.push_str(data.metric(random));
    text.push_str(random.pick(&["", "{host=*}", "{host=web01}", "{host=*,dc=*}", "{dc=*}"]));
    text
}

pub(super) fn request(data: &Data, random: &mut Random) -> Request {
    let (start, end) = range(random);
    let first = series(data, random);
    let exp = match random.below(12) {
        0 => {
            format!("scale({first},{})", random.pick(&["2", "0.5", "-1", "10.25", "x", "1e3", "0"]))
        }
        1 => format!("absolute({first})"),
        2 => format!(
            "movingAverage({first},{})",
            random.pick(&["2", "3", "'2min'", "'10s'", "0", "x", "'1y'"])
        ),
        3 => format!("highestMax({first},{})", random.pick(&["1", "2", "9", "0", "x"])),
        4 => format!("highestCurrent({first},{})", random.pick(&["1", "2", "9", "-1"])),
        5 => format!("alias({first},{})", random.pick(&["name", "@host", "a.@dc.b", "x,y"])),
        6 => format!("{}({first},{})", random.pick(&["sumSeries", "sum"]), series(data, random)),
        7 => format!(
            "{}({first},{})",
            random.pick(&["diffSeries", "difference"]),
            series(data, random)
        ),
        8 => format!(
            "{}({first},{})",
            random.pick(&["multiplySeries", "multiply"]),
            series(data, random)
        ),
        9 => format!(
            "{}({first},{})",
            random.pick(&["divideSeries", "divide"]),
            series(data, random)
        ),
        10 => format!("scale(absolute({first}),3)"),
        _ => random
            .pick(&[
                "nope(sum:m)",
                "scale(",
                "scale(sum:m)",
                "scale()",
                "sum(sum:m)",
                "",
                "scale(2,sum:m)",
            ])
            .to_owned(),
    };
    let mut request = Request::get("/api/query/gexp")
        .parameter("start", start.to_string())
        .parameter("end", end.to_string())
        .parameter("exp", exp);
    for (flag, percent) in [("ms", 20), ("arrays", 20), ("show_tsuids", 10), ("show_query", 5)] {
        if random.chance(percent) {
            request = request.flag(flag);
        }
    }
    request
}
