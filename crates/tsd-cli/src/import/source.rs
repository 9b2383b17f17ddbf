//! Reads lines from files, gzip files and standard input.

use std::{
    fs::File,
    io::{self, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use flate2::read::MultiGzDecoder;
use tokio::sync::mpsc;

/// Bytes per read.
const BLOCK_BYTES: usize = 256 << 10;
/// Blocks read ahead.
const READ_AHEAD: usize = 4;
/// Maximum length of a line, bytes.
pub(super) const MAX_LINE_BYTES: usize = 1 << 20;
/// Bytes kept of a longer line: one more than the maximum, and a carriage return.
const KEPT_BYTES: usize = MAX_LINE_BYTES + 2;

/// Blocks of an input. A thread reads them ahead, so that a signal stops the import even while a pipe is silent or a
/// disk is slow.
///
/// Opens a path, as [`Source::open`] does.
pub(super) fn read_ahead(
    path: &Path,
    read: Arc<AtomicU64>,
) -> io::Result<mpsc::Receiver<io::Result<Vec<u8>>>> {
    let mut source = Source::open(path, read)?;
    let (sender, blocks) = mpsc::channel(READ_AHEAD);
    // Not joined, because a read of a pipe may never return. The thread ends with the process.
    thread::Builder::new().name("import-read".to_owned()).spawn(move || {
        loop {
            let block = source.next_block().map(|block| block.map(<[u8]>::to_vec)).transpose();
            let Some(block) = block else { return };
            let failed = block.is_err();
            if sender.blocking_send(block).is_err() || failed {
                return;
            }
        }
    })?;
    Ok(blocks)
}

/// An input, read in blocks of whole lines.
struct Source {
    reader: Box<dyn Read + Send>,
    block: Vec<u8>,
    /// Bytes of `block` that the last call returned.
    returned: usize,
    ended: bool,
}

impl Source {
    /// Opens a path; `-` is standard input, files named `*.gz` are decompressed. `read` counts the bytes
    /// read from the file itself.
    fn open(path: &Path, read: Arc<AtomicU64>) -> io::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::new(Box::new(io::stdin())));
        }
        let file = Counted { inner: File::open(path)?, read };
        Ok(Self::new(if path.extension().is_some_and(|e| e == "gz") {
            Box::new(MultiGzDecoder::new(io::BufReader::with_capacity(64 << 10, file)))
        } else {
            Box::new(file)
        }))
    }

    fn new(reader: Box<dyn Read + Send>) -> Self {
        Self { reader, block: Vec::new(), returned: 0, ended: false }
    }

    /// The next whole lines; `None` at the end. The last line of the input may lack its line end. A line above
    /// [`MAX_LINE_BYTES`] is cut to [`KEPT_BYTES`], enough to detect its length.
    fn next_block(&mut self) -> io::Result<Option<&[u8]>> {
        self.block.drain(..self.returned);
        self.returned = 0;
        let mut searched = 0;
        loop {
            if let Some(end) = last_line_end(&self.block, searched) {
                self.returned = end;
                return Ok(self.block.get(..end));
            }
            if self.ended {
                self.returned = self.block.len();
                return Ok((self.returned > 0).then_some(self.block.as_slice()));
            }
            // The block has no line end.
            self.block.truncate(KEPT_BYTES);
            searched = self.block.len();
            // One read at a time, because a pipe may have less than a block.
            self.block.resize(searched + BLOCK_BYTES, 0);
            let room = self.block.get_mut(searched..).unwrap_or_default();
            let got = loop {
                match self.reader.read(room) {
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                    got => break got,
                }
            };
            self.block.truncate(searched + *got.as_ref().unwrap_or(&0));
            self.ended = got? == 0;
            if searched == KEPT_BYTES {
                let rest = self.block.get(searched..).unwrap_or_default();
                let dropped = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
                self.block.drain(searched..searched + dropped);
            }
        }
    }
}

fn last_line_end(block: &[u8], searched: usize) -> Option<usize> {
    let at = block.get(searched..)?.iter().rposition(|b| *b == b'\n')?;
    Some(searched + at + 1)
}

/// Lines of a block, without line ends.
pub(super) fn lines(block: &[u8]) -> impl Iterator<Item = &[u8]> {
    block
        .split_inclusive(|b| *b == b'\n')
        .map(|line| line.strip_suffix(b"\n").unwrap_or(line))
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
}

struct Counted<R> {
    inner: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let got = self.inner.read(buf)?;
        self.read.fetch_add(got as u64, Ordering::Relaxed);
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn read_all(mut source: Source) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        while let Some(block) = source.next_block().unwrap() {
            all.extend(lines(block).map(<[u8]>::to_vec));
        }
        all
    }

    #[test]
    fn blocks_hold_whole_lines() {
        let text: String = (0..100_000).map(|n| format!("line {n}\n")).collect::<Vec<_>>().concat();
        let source = Source::new(Box::new(io::Cursor::new(text.clone().into_bytes())));
        let expected: Vec<_> = text.lines().map(|l| l.as_bytes().to_vec()).collect();
        assert_eq!(read_all(source), expected);
    }

    #[test]
    fn last_line_end_is_optional_and_crlf_is_accepted() {
        let source = Source::new(Box::new(&b"a\r\n\nb"[..]));
        assert_eq!(read_all(source), [b"a".to_vec(), b"".to_vec(), b"b".to_vec()]);
    }

    #[test]
    fn an_overlong_line_is_cut_and_the_next_one_is_whole() {
        for length in
            [KEPT_BYTES - 1, KEPT_BYTES, KEPT_BYTES + 1, BLOCK_BYTES * 9, BLOCK_BYTES * 9 + 1]
        {
            for end in ["\n", "\r\n", ""] {
                let mut text = format!("a\n{}{end}", "x".repeat(length)).into_bytes();
                if !end.is_empty() {
                    text.extend(b"b\n");
                }
                let read = read_all(Source::new(Box::new(io::Cursor::new(text))));
                let lines: Vec<usize> = read.iter().map(Vec::len).collect();
                let (first, rest) = lines.split_first().unwrap();
                let (overlong, rest) = rest.split_first().unwrap();
                assert_eq!((*first, rest.len()), (1, usize::from(!end.is_empty())), "{length}");
                assert!(*overlong > MAX_LINE_BYTES, "{length} {end:?}");
            }
        }
        // The longest line that is accepted.
        let longest = format!("{}\r\nb", "x".repeat(MAX_LINE_BYTES)).into_bytes();
        let read = read_all(Source::new(Box::new(io::Cursor::new(longest))));
        assert_eq!(read.iter().map(Vec::len).collect::<Vec<_>>(), [MAX_LINE_BYTES, 1]);
        // Its carriage return is within the line, not at its end.
        let within = format!("{}\r{}\n", "x".repeat(MAX_LINE_BYTES), "y".repeat(BLOCK_BYTES * 2));
        let read = read_all(Source::new(Box::new(io::Cursor::new(within.into_bytes()))));
        assert!(read.iter().all(|line| line.len() > MAX_LINE_BYTES) && read.len() == 1);
    }

    #[test]
    fn gzip_files_of_several_members_are_decompressed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("points.gz");
        let mut file = File::create(&path).unwrap();
        for part in ["a\n", "b\n"] {
            let mut member = GzEncoder::new(Vec::new(), Compression::fast());
            member.write_all(part.as_bytes()).unwrap();
            file.write_all(&member.finish().unwrap()).unwrap();
        }
        let read = Arc::new(AtomicU64::new(0));
        let source = Source::open(&path, Arc::clone(&read)).unwrap();
        assert_eq!(read_all(source), [b"a".to_vec(), b"b".to_vec()]);
        assert_eq!(read.load(Ordering::Relaxed), file.metadata().unwrap().len());
    }
}
