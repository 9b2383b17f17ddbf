//! The faults, with the checks during and after each. `damage.rs` has the faults of files.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::atomic::Ordering::SeqCst,
    time::{Duration, Instant},
};

use serde_json::Value;
use tsd_testkit::{Daemon, PATIENCE, SplitMix64, http, try_http, wait_for};

use crate::{
    environment::Environment,
    load::HOUR_MS,
    run::{Figures, Run, read_series},
};

/// Limits of open files.
pub(crate) const FILES: u64 = 4_096;
const FEW_FILES: u64 = 256;
/// Bounds of a run.
const MOST_RESIDENT_BYTES: u64 = 2 << 30;
const MOST_FILES: u64 = 4_000;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    DiskFull,
    KillOnFullDisk,
    RestartOnFullDisk,
    Kill,
    FlipWhileRunning,
    FlipAndKill,
    Descriptors,
    Clock,
    ClockAndKill,
    Reload,
    Restart,
    Suspend,
}

impl Stage {
    pub(crate) const ALL: [Self; 12] = [
        Self::DiskFull,
        Self::KillOnFullDisk,
        Self::RestartOnFullDisk,
        Self::Kill,
        Self::FlipWhileRunning,
        Self::FlipAndKill,
        Self::Descriptors,
        Self::Clock,
        Self::ClockAndKill,
        Self::Reload,
        Self::Restart,
        Self::Suspend,
    ];

    pub(crate) fn is_possible(self, environment: &Environment) -> bool {
        match self {
            Self::DiskFull | Self::KillOnFullDisk | Self::RestartOnFullDisk => environment.has_disk,
            Self::Clock | Self::ClockAndKill => environment.clock.is_some(),
            _ => true,
        }
    }
}

/// The thread that injects faults and checks.
pub(crate) struct Conductor<'a> {
    pub(crate) run: &'a Run,
    pub(crate) environment: &'a Environment,
    daemon: Option<Daemon>,
    pub(crate) random: SplitMix64,
    /// Time under load in stages.
    pub(crate) load: Duration,
    /// Errors of daemons that ended.
    errors: usize,
}

/// Answer of `/api/status`.
pub(crate) struct Status {
    pub(crate) word: String,
    pub(crate) problems: Vec<Value>,
    pub(crate) ready: bool,
}

impl Status {
    fn has(&self, part: &str, impact: &str, reason: &str) -> bool {
        self.problems.iter().any(|problem| {
            problem["part"] == part
                && problem["impact"] == impact
                && problem["reason"].as_str().is_some_and(|text| text.contains(reason))
        })
    }

    pub(crate) fn is_ok(&self) -> bool {
        // Background work may be behind.
        self.word == "ok"
            && self.ready
            && self.problems.iter().all(|problem| problem["impact"] == "degraded")
    }

    /// True if the only problem is a file that a stage has damaged.
    pub(crate) fn names_damage(&self, run: &Run) -> bool {
        let mut serious = self.problems.iter().filter(|problem| problem["impact"] != "degraded");
        let names = |problem: &Value| {
            problem["part"] == "data"
                && run.names_damage(problem["reason"].as_str().unwrap_or_default())
        };
        self.ready
            && self.word == "partial"
            && serious.next().is_some_and(names)
            && serious.all(names)
    }

    fn text(&self) -> String {
        format!("{} (ready: {}) {:?}", self.word, self.ready, self.problems)
    }
}

impl<'a> Conductor<'a> {
    pub(crate) fn start(
        run: &'a Run,
        environment: &'a Environment,
        seed: u64,
        load: Duration,
    ) -> Self {
        let random = SplitMix64::new(seed);
        let mut conductor = Self { run, environment, daemon: None, random, load, errors: 0 };
        conductor.start_daemon(FILES);
        conductor
    }

    pub(crate) fn start_daemon(&mut self, open_files: u64) {
        let daemon = self.environment.start(open_files);
        self.run.serve(daemon.address());
        self.daemon = Some(daemon);
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().expect("a daemon")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.daemon().address()
    }

    pub(crate) fn kill(&mut self) {
        self.run.end();
        let daemon = self.daemon.take().expect("a daemon");
        self.errors += daemon.events_at_level("ERROR").len();
        daemon.kill();
    }

    fn terminate(&mut self) {
        self.run.end();
        let daemon = self.daemon.take().expect("a daemon");
        self.errors += daemon.events_at_level("ERROR").len();
        let status = daemon.terminate();
        self.require(status.success(), || format!("exit after SIGTERM: {status}"));
    }

    pub(crate) fn require(&self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.run.fail(what());
        }
    }

    /// Waits until a condition holds; fails the run otherwise.
    fn wait(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let poll = || {
            std::thread::sleep(Duration::from_millis(50));
            (holds() || self.run.is_stopped()).then_some(())
        };
        let ended = wait_for(poll);
        self.require(ended.is_some(), || format!("not within {PATIENCE:?}: {what}"));
    }

    pub(crate) fn status(&self) -> Status {
        let (Ok(status), Ok(ready)) = (
            try_http(self.address(), "GET", "/api/status", None),
            try_http(self.address(), "GET", "/api/health/ready", None),
        ) else {
            return Status { word: "no response".into(), problems: Vec::new(), ready: false };
        };
        let body: Value = serde_json::from_str(&status.body).unwrap_or_default();
        Status {
            word: body["status"].as_str().unwrap_or(&status.body).into(),
            problems: body["problems"].as_array().cloned().unwrap_or_default(),
            ready: ready.status == 200,
        }
    }

    pub(crate) fn wait_for_status(&self, what: &str, holds: impl Fn(&Status) -> bool) {
        let mut last = String::new();
        let ended = wait_for(|| {
            std::thread::sleep(Duration::from_millis(50));
            let status = self.status();
            last = status.text();
            (holds(&status) || self.run.is_stopped()).then_some(())
        });
        self.require(ended.is_some(), || format!("status {what} not within {PATIENCE:?}: {last}"));
    }

    pub(crate) fn wait_until_ok(&self) {
        self.wait_for_status("ok", Status::is_ok);
    }

    /// Waits until the daemon serves everything. A read or merge may find an unread damaged byte at
    /// any time; its error must name the file, and the model is adapted here. Returns true if this
    /// happened.
    fn settle(&mut self) -> bool {
        let run = self.run;
        let met = |status: &Status| status.is_ok() || status.names_damage(run);
        self.wait_for_status("ok or of damage", met);
        if !run.failures().is_empty() || self.status().is_ok() {
            return false;
        }
        let lost = self.account_for_damage().unwrap_or_default();
        println!("  damage found late: {lost}");
        true
    }

    fn metric(&self, name: &str) -> f64 {
        tsd_testkit::metric(self.address(), name).unwrap_or_default()
    }

    /// Injects a fault, checks the conditions during it, ends it, and checks everything.
    pub(crate) fn execute(&mut self, stage: Stage) {
        let started = Instant::now();
        let detail = match stage {
            Stage::DiskFull => self.disk_full(|_| {}),
            Stage::KillOnFullDisk => self.disk_full(|conductor| {
                conductor.kill();
                conductor.start_daemon(FILES);
            }),
            Stage::RestartOnFullDisk => self.disk_full(|conductor| {
                conductor.terminate();
                conductor.start_daemon(FILES);
            }),
            Stage::Kill => self.kill_often(),
            Stage::FlipWhileRunning => self.flip(false),
            Stage::FlipAndKill => self.flip(true),
            Stage::Descriptors => self.descriptors(),
            Stage::Clock => self.clock(false),
            Stage::ClockAndKill => self.clock(true),
            Stage::Reload => self.reload(),
            Stage::Restart => {
                self.terminate();
                self.start_daemon(FILES);
                String::new()
            }
            Stage::Suspend => self.suspend(),
        };
        if self.run.failures().is_empty() {
            self.settle();
            let settle = matches!(
                stage,
                Stage::Kill | Stage::KillOnFullDisk | Stage::Restart | Stage::ClockAndKill
            );
            let verified = self.verify(settle);
            self.check_bounds();
            self.run.figures.stages.fetch_add(1, SeqCst);
            println!(
                "  {stage:?}: {verified} points verified, {:.1} s {detail}",
                started.elapsed().as_secs_f64()
            );
        }
    }

    /// Fills the disk, calls `on_full_disk`, and frees the disk.
    fn disk_full(&mut self, on_full_disk: impl FnOnce(&mut Self)) -> String {
        let run = self.run;
        let gone = run.new_series("soak.gone", "a");
        let at = 1_500_000_000_000 + run.figures.stages.load(SeqCst) as i64 * HOUR_MS;
        let body =
            format!(r#"{{"metric":"soak.gone","timestamp":{at},"value":1,"tags":{{"host":"a"}}}}"#);
        let put = http(self.address(), "POST", "/api/put", Some(&body));
        self.require(put.status == 204, || format!("put before the disk is full: {put:?}"));
        run.disk_is_full.store(true, SeqCst);
        self.environment.fill();
        // Both kinds of senders are rejected with a reason or held.
        self.wait("points are refused", || {
            let uri = "/api/put?details";
            let put = http(self.address(), "POST", uri, Some(&body));
            put.status == 503 && put.body.contains("no space left")
        });
        self.wait("telnet is held up", || self.metric("tsd_write_held_points") > 0.0);
        self.check_full_status();
        let version = tsd_testkit::exchange(self.address(), b"version\nexit\n");
        let version = String::from_utf8_lossy(&version).into_owned();
        self.require(version.contains("built"), || format!("commands on a full disk: {version}"));
        self.verify(false);
        let uri = crate::run::series_uri(&gone, &(at..=at));
        let deleted = http(self.address(), "DELETE", &uri, None);
        self.require(deleted.status == 200, || format!("a delete on a full disk: {deleted:?}"));
        let left = read_series(self.address(), &gone, &(at..=at));
        self.require(left.as_ref().is_ok_and(Vec::is_empty), || format!("deleted, but {left:?}"));
        on_full_disk(self);
        // A start removes incomplete files.
        self.environment.fill();
        self.check_full_status();
        self.verify(false);
        let lowest = self.environment.free_bytes();
        self.environment.unfill();
        let freed = Instant::now();
        self.settle();
        self.wait("points are taken again", || {
            let put = http(self.address(), "POST", "/api/put", Some(&body));
            put.status == 204
        });
        self.wait("no points are held", || self.metric("tsd_write_held_points") <= 0.0);
        let recovered = freed.elapsed().as_secs_f64();
        let deleted = http(self.address(), "DELETE", &uri, None);
        self.require(deleted.status == 200, || format!("a delete: {deleted:?}"));
        run.disk_is_full.store(false, SeqCst);
        format!("({lowest} bytes free on the full disk, recovered after {recovered:.1} s)")
    }

    fn check_full_status(&self) {
        self.wait_for_status("of a full disk", |status| {
            status.word == "partial"
                && !status.ready
                && status.has("disk", "writes are rejected", "")
        });
    }

    fn kill_often(&mut self) -> String {
        let kills = 1 + self.random.below(3);
        for _ in 0..kills {
            self.run.sleep(Duration::from_millis(self.random.below(1_500)));
            self.kill();
            self.start_daemon(FILES);
        }
        format!("({kills} times)")
    }

    /// Connections take all descriptors that the store leaves.
    fn descriptors(&mut self) -> String {
        let run = self.run;
        self.terminate();
        run.connections_are_taken.store(true, SeqCst);
        self.start_daemon(FEW_FILES);
        let address = self.address();
        let series = run.new_series("soak.few", &format!("s{}", run.figures.stages.load(SeqCst)));
        let mut steady = tsd_testkit::connect(address);
        let mut put = |from: i64| {
            for second in from..from + 100 {
                let at = (1_600_000_000 + second) * 1_000;
                series.attempt([(at, Some(second as f64))]);
                writeln!(steady, "put {} {at} {second} host={}", series.metric, series.host)
                    .expect("a connection");
            }
            Figures::add(&run.figures.sent, 100);
        };
        put(0);
        let idle: Vec<_> =
            (0..FEW_FILES * 2).filter_map(|_| TcpStream::connect(address).ok()).collect();
        let mut reason = String::new();
        self.wait("a connection is refused with the reason", || {
            let mut reply = String::new();
            if let Ok(mut stream) = TcpStream::connect(address) {
                let _ = stream.write_all(b"version\n");
                let _ = stream.shutdown(Shutdown::Write);
                let _ = stream.read_to_string(&mut reply);
            }
            let refused = reply.contains("too many connections");
            if refused {
                reply.trim().clone_into(&mut reason);
            }
            refused
        });
        // The earlier connection is still served.
        put(100);
        run.sleep(self.load);
        put(200);
        steady.write_all(b"status\n").expect("a connection");
        steady.shutdown(Shutdown::Write).expect("a connection");
        let mut replies = String::new();
        steady.read_to_string(&mut replies).expect("replies");
        series.acknowledge((0..300).map(|n| ((1_600_000_000 + n) * 1_000, Some(n as f64))));
        Figures::add(&run.figures.acknowledged, 300);
        let open = idle.len();
        drop(idle);
        let damaged = self.settle();
        self.require(replies == "ok\n" || (damaged && replies == "partial\n"), || {
            format!("with few descriptors: {replies}")
        });
        run.connections_are_taken.store(false, SeqCst);
        format!("({open} idle connections; {reason})")
    }

    fn clock(&mut self, kill: bool) -> String {
        let offsets = [-10, -3_600, -86_400, 7_200, 40 * 86_400];
        let offset = offsets[self.random.below(offsets.len() as u64) as usize];
        self.environment.set_clock(offset);
        self.run.sleep(self.load);
        if kill {
            self.kill();
            self.start_daemon(FILES);
        }
        self.settle();
        self.verify(false);
        self.environment.set_clock(0);
        self.run.sleep(self.load);
        format!("({offset} s and back)")
    }

    fn reload(&self) -> String {
        for _ in 0..3 {
            self.daemon().signal("HUP");
            self.run.sleep(Duration::from_millis(300));
        }
        String::new()
    }

    fn suspend(&mut self) -> String {
        let time = self.load.min(Duration::from_secs(2 + self.random.below(10)));
        self.daemon().signal("STOP");
        std::thread::sleep(time);
        self.daemon().signal("CONT");
        format!("({:.1} s)", time.as_secs_f64())
    }

    fn check_bounds(&self) {
        let resident = tsd_testkit::process::resident_bytes(self.daemon().pid());
        let (files, _) = self.environment.files();
        self.require(resident < MOST_RESIDENT_BYTES, || format!("{resident} bytes resident"));
        self.require(files < MOST_FILES, || format!("{files} files"));
    }

    /// A row of figures.
    pub(crate) fn row(&self, since: Instant) -> String {
        let minutes = since.elapsed().as_secs_f64() / 60.0;
        let resident = tsd_testkit::process::resident_bytes(self.daemon().pid()) >> 20;
        let (files, bytes) = self.environment.files();
        let counts: Vec<_> = self.run.figures.row().iter().map(u64::to_string).collect();
        format!(
            "| {minutes:.0} | {} | {resident} | {files} | {} | {} |",
            counts.join(" | "),
            bytes >> 20,
            self.errors
        )
    }

    /// Ends the daemon and starts it once more, and reads everything from it.
    pub(crate) fn finish(mut self) -> u64 {
        self.terminate();
        self.start_daemon(FILES);
        self.settle();
        let verified = self.verify(false);
        self.terminate();
        verified
    }

    /// Warnings and errors of the daemon, for a failure.
    pub(crate) fn log(&self) -> Vec<String> {
        let Some(daemon) = &self.daemon else { return Vec::new() };
        let levels = ["WARN", "ERROR"];
        levels
            .iter()
            .flat_map(|level| daemon.events_at_level(level))
            .map(|e| e.to_string())
            .collect()
    }
}
