//! Runs HBase's Java client in one virtual machine for all rounds.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use tsd_testkit::process;

use crate::bench_cluster::BenchCluster;

/// Flags that HBase's client needs on Java 17.
const FLAGS: [&str; 7] = [
    "-Xmx2g",
    "-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
];

/// The compiled programs of `cluster/java`.
pub(crate) struct JavaPrograms {
    classes: PathBuf,
}

/// Settings of a program.
#[derive(Debug, Default)]
pub(crate) struct JavaSettings {
    /// Flags of the virtual machine.
    pub(crate) flags: Vec<String>,
    /// Directories of configuration, first in the class path.
    pub(crate) directories: Vec<PathBuf>,
    /// Properties of HBase's client.
    pub(crate) properties: Vec<(String, String)>,
}

/// A running program; it reads a request per line.
pub(crate) struct JavaClient {
    process: Child,
    requests: ChildStdin,
    results: BufReader<ChildStdout>,
}

/// Result of a request.
pub(crate) struct JavaResult {
    pub(crate) seconds: f64,
    /// CPU seconds of the virtual machine meanwhile, compiler and garbage collector included.
    pub(crate) cpu: f64,
    /// Values after the seconds.
    pub(crate) values: Vec<u64>,
}

impl JavaPrograms {
    /// Compiles them into `directory`.
    pub(crate) fn compile(cluster: &BenchCluster, directory: &Path) -> Self {
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("cluster/java");
        let files = fs::read_dir(&sources).expect("cluster/java");
        let files = files.map(|file| file.expect("a file").path());
        let files = files.filter(|file| file.extension().is_some_and(|ext| ext == "java"));
        let classes = directory.join("classes");
        let done = Command::new("javac")
            .args(["-nowarn", "-proc:none", "-d"])
            .arg(&classes)
            .args(files)
            .env("CLASSPATH", cluster.processes().class_path())
            .output()
            .expect("javac");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        Self { classes }
    }

    /// Starts a program.
    pub(crate) fn start(&self, cluster: &BenchCluster, program: &str) -> JavaClient {
        self.start_with(cluster, program, &JavaSettings::default())
    }

    /// Starts a program with settings of its own.
    pub(crate) fn start_with(
        &self,
        cluster: &BenchCluster,
        program: &str,
        settings: &JavaSettings,
    ) -> JavaClient {
        let directories = settings.directories.iter().map(|path| format!("{}:", path.display()));
        let classes = self.classes.display();
        let class_path = directories.collect::<String>()
            + &format!("{classes}:{}", cluster.processes().class_path());
        let log = File::create(self.classes.join(format!("{program}.log"))).expect("a log");
        let mut process = Command::new("java")
            .args(FLAGS)
            .args(&settings.flags)
            .args([program, &cluster.processes().client_quorum()])
            .args(settings.properties.iter().flat_map(|(name, value)| [name, value]))
            .env("CLASSPATH", class_path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("java");
        let requests = process.stdin.take().expect("a pipe");
        let results = BufReader::new(process.stdout.take().expect("a pipe"));
        JavaClient { process, requests, results }
    }
}

impl JavaClient {
    /// Sends a request and waits for its result.
    pub(crate) fn run(&mut self, request: &str) -> JavaResult {
        let before = process::cpu_seconds(self.process.id());
        writeln!(self.requests, "{request}").expect("the program runs");
        let mut line = String::new();
        // Libraries may print to the same stream.
        let words = loop {
            line.clear();
            let read = self.results.read_line(&mut line).expect("a line");
            assert!(read > 0, "the program exited at: {request}");
            if let Some(words) = line.strip_prefix("done ") {
                break words;
            }
        };
        let cpu = process::cpu_seconds(self.process.id()) - before;
        let mut words = words.split_whitespace();
        let seconds = words.next().and_then(|word| word.parse().ok()).expect("seconds");
        let values = words.map(|word| word.parse().expect("a number")).collect();
        JavaResult { seconds, cpu, values }
    }
}

impl Drop for JavaClient {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
