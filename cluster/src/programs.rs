//! Compiles and runs Java programs that use a cluster.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use tokio::time::sleep;

use crate::{
    cluster::Cluster,
    error::ClusterError,
    java,
    node::Node,
    process::{Process, Program},
};

/// Interval of polling a running program.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Result of a successful Java program.
#[derive(Clone, Debug)]
pub struct JavaRun {
    /// Standard output of the program.
    pub stdout: String,
    /// User and system CPU time of the JVM.
    pub cpu: Duration,
    /// Time from start to exit.
    pub wall: Duration,
}

/// Compiles a Java file against HBase's jars into the cluster's directory and runs the class of the
/// file's name. HBase's client is configured for this cluster by `hbase-site.xml` on the class path. The
/// program is killed when the future is dropped.
///
/// # Errors
///
/// If there is no compiler, the file does not compile, or the program fails.
pub async fn run_java(
    cluster: &Cluster,
    source: &Path,
    args: &[&str],
) -> Result<JavaRun, ClusterError> {
    run(cluster, source, args, &cluster.jvm_of_client()).await
}

/// A Java program with the configuration of a client of a secured cluster.
#[derive(Clone, Copy, Debug)]
pub struct JavaClient<'a> {
    /// The Java file.
    pub source: &'a Path,
    /// Arguments of the program.
    pub args: &'a [&'a str],
    /// Additional flags of the JVM; they take precedence.
    pub flags: &'a [&'a str],
}

impl JavaClient<'_> {
    /// As [`run_java`], with the files of [`Cluster::client_files`] only: their directory is on the class path, and
    /// the JVM has the system properties that a client needs.
    ///
    /// # Errors
    ///
    /// As [`run_java`].
    pub async fn run(self, cluster: &Cluster) -> Result<JavaRun, ClusterError> {
        let mut arguments = cluster.jvm_of_secured_client();
        arguments.extend(self.flags.iter().map(|&flag| flag.to_owned()));
        run(cluster, self.source, self.args, &arguments).await
    }
}

/// Compiles and runs a program in a JVM with these arguments.
async fn run(
    cluster: &Cluster,
    source: &Path,
    args: &[&str],
    jvm: &[String],
) -> Result<JavaRun, ClusterError> {
    let classes = cluster.directory().join("classes");
    let class = compile(cluster, source, &classes).await?;
    let (log, output) =
        (classes.join(format!("{class}.log")), classes.join(format!("{class}.out")));
    // The log must contain this run only.
    let _ = fs::remove_file(&log);
    let mut process = cluster.start_java(&class, args, jvm, (&log, &output))?;
    let start = Instant::now();
    while process.is_alive() {
        sleep(POLL_INTERVAL).await;
    }
    let wall = start.elapsed();
    // The CPU time is available only until the process is reaped.
    let cpu = process.identity().cpu_time().unwrap_or_default();
    if process.reap() != Some(true) {
        return Err(ClusterError::Java { what: class, output: crate::process::tail(&log) });
    }
    let stdout = fs::read(&output).map_err(ClusterError::file("read", output))?;
    Ok(JavaRun { stdout: String::from_utf8_lossy(&stdout).into_owned(), cpu, wall })
}

/// Result of a command-line tool of OpenTSDB.
#[derive(Clone, Debug)]
pub struct ToolRun {
    /// True if its exit status was 0.
    pub success: bool,
    /// Output and log of the tool, which has only warnings and errors.
    pub output: String,
}

/// Runs a command-line tool of OpenTSDB with the settings of [`Node::OpenTsdb`], which may run meanwhile:
/// `class` is its name in `net.opentsdb.tools`.
///
/// # Errors
///
/// If the tool cannot be started, or its output cannot be read.
pub async fn run_opentsdb_tool(
    cluster: &Cluster,
    class: &str,
    args: &[&str],
) -> Result<ToolRun, ClusterError> {
    let class = format!("net.opentsdb.tools.{class}");
    let (command, mut arguments, environment) =
        cluster.opentsdb_command(Node::OpenTsdb, 0, &class)?;
    arguments.extend(args.iter().map(|&arg| arg.to_owned()));
    let log = cluster.directory().join("logs").join("opentsdb-tool.log");
    // The log must contain this run only.
    let _ = fs::remove_file(&log);
    let program = Program {
        command: &command,
        arguments: arguments.into_iter().map(Into::into).collect(),
        environment,
        directory: cluster.directory(),
        log: &log,
        output: None,
    };
    let mut process = cluster.start_program(&class, &program)?;
    while process.is_alive() {
        sleep(POLL_INTERVAL).await;
    }
    let output = fs::read(&log).map_err(ClusterError::file("read", &log))?;
    Ok(ToolRun {
        success: process.reap() == Some(true),
        output: String::from_utf8_lossy(&output).into_owned(),
    })
}

/// Compiles a file; returns the name of its class.
async fn compile(cluster: &Cluster, source: &Path, classes: &Path) -> Result<String, ClusterError> {
    let java = cluster.java_command();
    let javac =
        java::tool(java, "javac").ok_or_else(|| ClusterError::NoCompiler { java: java.into() })?;
    let class_path = cluster.class_path();
    let (file, classes) = (source.to_path_buf(), classes.to_path_buf());
    let compiled = tokio::task::spawn_blocking(move || {
        std::process::Command::new(javac)
            .args(["-nowarn", "-d"])
            .arg(classes)
            .arg(file)
            .env("CLASSPATH", class_path)
            .stdin(Stdio::null())
            .output()
    });
    let failed = |source| ClusterError::Spawn { what: "javac".into(), source };
    let compiled = compiled.await.map_err(|error| failed(std::io::Error::other(error)))?;
    let compiled = compiled.map_err(failed)?;
    if !compiled.status.success() {
        return Err(ClusterError::Java {
            what: format!("compilation of {}", source.display()),
            output: String::from_utf8_lossy(&compiled.stderr).into_owned(),
        });
    }
    let class = PathBuf::from(source).file_stem().map(|stem| stem.to_string_lossy().into_owned());
    Ok(class.unwrap_or_default())
}

impl Cluster {
    /// Starts a compiled class; its output is written to `output`.
    fn start_java(
        &self,
        class: &str,
        args: &[&str],
        jvm: &[String],
        (log, output): (&Path, &Path),
    ) -> Result<Process, ClusterError> {
        let mut arguments = jvm.to_vec();
        arguments.push(class.to_owned());
        arguments.extend(args.iter().map(|&arg| arg.to_owned()));
        let program = Program {
            command: self.java_command(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            environment: vec![("CLASSPATH", self.class_path_of_client())],
            directory: self.directory(),
            log,
            output: Some(output),
        };
        self.start_program(class, &program)
    }
}
