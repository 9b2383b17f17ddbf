//! Built-in plug-ins, from outside: their settings, the files they follow, and what they do to tools.

use std::{fs, process::Command, time::Duration};

use tsd_testkit::{exchange, wait_for};

use crate::{TSDB, tsdb};

const PATIENCE: Duration = Duration::from_mins(1);

#[test]
fn a_daemon_and_an_import_follow_the_rules_of_the_time_series_filter() {
    let directory = tempfile::tempdir().expect("a directory");
    let (data, rules) = (directory.path().join("data"), directory.path().join("rules"));
    fs::write(&rules, "deny tmp.*\n").expect("write");
    let settings = [
        ("TSD_TIMESERIESFILTER_ENABLE", "true"),
        ("TSD_TIMESERIESFILTER_PLUGIN", "rules"),
        ("TSD_TIMESERIESFILTER_RULES_FILE", rules.to_str().expect("a path")),
    ];
    let builder =
        || settings.iter().fold(tsdb(&data), |daemon, (key, value)| daemon.env(key, value));
    let daemon = builder().start();
    let put = |metric: &str| {
        let line = format!("put {metric} 1600000000 1 host=a\nexit\n");
        String::from_utf8_lossy(&exchange(daemon.address(), line.as_bytes())).into_owned()
    };
    assert_eq!(put("m"), "");
    assert!(put("tmp.x").contains("line 1 of its rules"));
    fs::write(&rules, "permit *\n").expect("write");
    daemon.signal("HUP");
    let _ = daemon
        .wait_for_event("the file of rules of the filter is invalid; they are unchanged", |_| true);
    assert!(put("tmp.x").contains("line 1 of its rules"));
    fs::write(&rules, "allow tmp.*\ndeny *\n").expect("write");
    daemon.signal("HUP");
    wait_for(PATIENCE, || put("tmp.x").is_empty().then_some(())).expect("the new rules");
    assert!(put("m").contains("line 2 of its rules"), "a series that was cached");
    assert!(daemon.terminate().success());

    let points = directory.path().join("points");
    fs::write(&points, "tmp.x 1600000001 1 host=a\nm 1600000001 1 host=a\n").expect("write");
    let output = Command::new(TSDB)
        .envs(settings)
        .args(["import", "--skip-errors", "--data", data.to_str().expect("a path")])
        .arg(&points)
        .output()
        .expect("run tsdb");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let shown = format!("{}{stderr}", String::from_utf8_lossy(&output.stdout));
    assert!(shown.contains("line 2 of its rules"), "{shown}");

    fs::remove_file(&rules).expect("remove");
    let (status, stderr) = builder().run_to_exit();
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("tsd.timeseriesfilter.rules_file"), "{stderr}");
}
