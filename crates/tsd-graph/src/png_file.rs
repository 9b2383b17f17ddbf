//! PNG files: the chunks around a zlib stream of rows.
//!
//! Writing the format takes a few lines, since the daemon already has a DEFLATE encoder; a crate
//! would add three dependencies.

use std::io::{self, Write};

use flate2::{Compression, Crc, write::ZlibEncoder};
use tiny_skia::Pixmap;

use crate::pace::Pace;

const SIGNATURE: [u8; 8] = *b"\x89PNG\r\n\x1a\n";
/// Color types of the format.
const RGB: u8 = 2;
const RGBA: u8 = 6;
/// Stores each byte of a row as the difference from the byte above, which is zero in most of a
/// graph.
const FILTER_UP: u8 = 2;
/// A fast level; on graphs its files are within a tenth of the size of the slowest level.
const LEVEL: Compression = Compression::new(5);

/// Approximate bytes of a chunk of pixels.
const CHUNK_BYTES: usize = 64 << 10;
/// Files up to this size are copied to a buffer of exactly their size.
const SMALL_FILE_BYTES: usize = 256 << 10;
/// Work of a pixel, in points.
const PIXEL_WORK: usize = 2;

/// Encodes a picture. After a stop the file lacks its last rows.
pub(crate) fn encode_png(
    pixmap: &Pixmap,
    is_transparent: bool,
    pace: &Pace<'_>,
) -> io::Result<Vec<u8>> {
    let (width, height) = (pixmap.width(), pixmap.height());
    let channels = if is_transparent { 4 } else { 3 };
    let row_bytes = width as usize * channels;
    // Reserved at once, since growing would copy tens of megabytes. Unwritten pages take no memory.
    let mut out = Vec::with_capacity(row_bytes * height as usize);
    out.extend(SIGNATURE);
    let mut header = Vec::with_capacity(13);
    header.extend(width.to_be_bytes());
    header.extend(height.to_be_bytes());
    // Eight bits a channel; the only compression and filter method; not interlaced.
    header.extend([8, if is_transparent { RGBA } else { RGB }, 0, 0, 0]);
    push_chunk(&mut out, *b"IHDR", &header);
    let mut above = vec![0; row_bytes];
    let mut row = Vec::with_capacity(row_bytes);
    let mut encoder = ZlibEncoder::new(Vec::new(), LEVEL);
    let mut filtered = Vec::with_capacity(row_bytes + 1);
    for pixels in pixmap.pixels().chunks_exact(width as usize) {
        if !pace.goes_on(pixels.len() * PIXEL_WORK) {
            break;
        }
        row.clear();
        for pixel in pixels {
            let color = pixel.demultiply();
            row.extend([color.red(), color.green(), color.blue()]);
            if is_transparent {
                row.push(color.alpha());
            }
        }
        filtered.clear();
        filtered.push(FILTER_UP);
        filtered.extend(row.iter().zip(&above).map(|(byte, above)| byte.wrapping_sub(*above)));
        encoder.write_all(&filtered)?;
        if encoder.get_ref().len() >= CHUNK_BYTES {
            push_chunk(&mut out, *b"IDAT", encoder.get_ref());
            encoder.get_mut().clear();
        }
        std::mem::swap(&mut row, &mut above);
    }
    push_chunk(&mut out, *b"IDAT", &encoder.finish()?);
    push_chunk(&mut out, *b"IEND", &[]);
    if out.len() <= SMALL_FILE_BYTES {
        out.shrink_to_fit();
    }
    Ok(out)
}

/// Appends length, name, content and checksum.
fn push_chunk(out: &mut Vec<u8>, name: [u8; 4], content: &[u8]) {
    let mut checksum = Crc::new();
    checksum.update(&name);
    checksum.update(content);
    out.extend((content.len() as u32).to_be_bytes());
    out.extend(name);
    out.extend_from_slice(content);
    out.extend(checksum.sum().to_be_bytes());
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use tiny_skia::{Color, Paint, Rect, Transform};

    use super::*;

    fn picture() -> Pixmap {
        let mut pixmap = Pixmap::new(37, 11).unwrap();
        let mut paint = Paint::default();
        paint.set_color(Color::from_rgba8(200, 10, 30, 255));
        let rect = Rect::from_ltrb(3.0, 2.0, 20.0, 9.0).unwrap();
        pixmap.fill_rect(rect, &paint, Transform::identity(), None);
        pixmap
    }

    /// The pixels that another decoder finds.
    fn decode(bytes: &[u8]) -> (png::ColorType, Vec<u8>) {
        let mut reader = png::Decoder::new(io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut pixels).unwrap();
        assert_eq!((info.width, info.height), (37, 11));
        (info.color_type, pixels)
    }

    #[test]
    fn pixels_are_decoded_as_they_were() {
        let mut opaque = picture();
        let mut pause = || true;
        let pace = Pace::new(&mut pause);
        let (color_type, pixels) = decode(&encode_png(&opaque, true, &pace).unwrap());
        assert_eq!(color_type, png::ColorType::Rgba);
        let expected: Vec<u8> = opaque
            .pixels()
            .iter()
            .map(tiny_skia::PremultipliedColorU8::demultiply)
            .flat_map(|color| [color.red(), color.green(), color.blue(), color.alpha()])
            .collect();
        assert_eq!(pixels, expected);
        opaque.fill(Color::WHITE);
        let (color_type, pixels) = decode(&encode_png(&opaque, false, &pace).unwrap());
        assert_eq!(color_type, png::ColorType::Rgb);
        assert_eq!(pixels, vec![255; 37 * 11 * 3]);
    }
}
