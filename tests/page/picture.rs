//! Makes pictures of the page small: a PNG of at most 256 colours, as its views have but for the edges of letters and lines.

use std::{
    collections::HashMap,
    io::{Read, Write},
};

use flate2::{Compression, Crc, read::ZlibDecoder, write::ZlibEncoder};

const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";

/// Bytes of a chunk besides its data: length, name and checksum.
const CHUNK_FRAME: usize = 12;

type Colour = [u8; 3];

/// Encodes a PNG of 8 bits a channel with a palette. Colours beyond 256 become the nearest ones of those that are used most.
pub(crate) fn with_palette(png: &[u8]) -> Vec<u8> {
    let (width, pixels) = decode(png);
    let mut counts: HashMap<Colour, usize> = HashMap::new();
    for pixel in &pixels {
        *counts.entry(*pixel).or_default() += 1;
    }
    let mut palette: Vec<(Colour, usize)> = counts.into_iter().collect();
    palette.sort_by_key(|(colour, count)| (usize::MAX - count, *colour));
    let palette: Vec<Colour> = palette.into_iter().take(256).map(|(colour, _)| colour).collect();
    let mut places: HashMap<Colour, u8> = HashMap::new();
    let mut rows = Vec::with_capacity(pixels.len() + pixels.len() / width);
    for row in pixels.chunks(width) {
        rows.push(0);
        rows.extend(
            row.iter()
                .map(|pixel| *places.entry(*pixel).or_insert_with(|| nearest(&palette, *pixel))),
        );
    }
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&rows).expect("compress");
    let rows = encoder.finish().expect("compress");
    let mut head = Vec::new();
    head.extend((width as u32).to_be_bytes());
    head.extend(((pixels.len() / width) as u32).to_be_bytes());
    // Eight bits, a palette, and the only methods there are.
    head.extend([8, 3, 0, 0, 0]);
    let mut made = SIGNATURE.to_vec();
    for (name, data) in
        [(b"IHDR", &head), (b"PLTE", &palette.concat()), (b"IDAT", &rows), (b"IEND", &Vec::new())]
    {
        let mut crc = Crc::new();
        crc.update(name);
        crc.update(data);
        made.extend((data.len() as u32).to_be_bytes());
        made.extend(name);
        made.extend(data.as_slice());
        made.extend(crc.sum().to_be_bytes());
    }
    made
}

fn nearest(palette: &[Colour], pixel: Colour) -> u8 {
    let distance = |colour: &Colour| -> u32 {
        colour.iter().zip(pixel).map(|(a, b)| u32::from(a.abs_diff(b)).pow(2)).sum()
    };
    let found = (0..palette.len()).min_by_key(|at| distance(&palette[*at])).unwrap_or(0);
    u8::try_from(found).expect("at most 256 colours")
}

/// The width of a picture and its pixels, row by row.
fn decode(png: &[u8]) -> (usize, Vec<Colour>) {
    let mut rest = png.strip_prefix(SIGNATURE).expect("a PNG");
    let (mut head, mut data) = (Vec::new(), Vec::new());
    while rest.len() >= CHUNK_FRAME {
        let length = u32::from_be_bytes(rest[..4].try_into().expect("four bytes")) as usize;
        let content = &rest[8..8 + length];
        match &rest[4..8] {
            b"IHDR" => head.extend_from_slice(content),
            b"IDAT" => data.extend_from_slice(content),
            _ => {}
        }
        rest = &rest[CHUNK_FRAME + length..];
    }
    let width = u32::from_be_bytes(head[..4].try_into().expect("four bytes")) as usize;
    assert_eq!(head[8], 8, "bits a channel");
    let channels = match head[9] {
        2 => 3,
        6 => 4,
        other => panic!("colour type {other}"),
    };
    let mut filtered = Vec::new();
    ZlibDecoder::new(data.as_slice()).read_to_end(&mut filtered).expect("decompress");
    let stride = width * channels;
    let mut above = vec![0_u8; stride];
    let mut pixels = Vec::new();
    for line in filtered.chunks(stride + 1) {
        let mut row = line[1..].to_vec();
        for at in 0..row.len() {
            let left = if at < channels { 0 } else { row[at - channels] };
            let corner = if at < channels { 0 } else { above[at - channels] };
            let add = match line[0] {
                0 => 0,
                1 => left,
                2 => above[at],
                3 => u8::midpoint(left, above[at]),
                4 => paeth(left, above[at], corner),
                other => panic!("filter {other}"),
            };
            row[at] = row[at].wrapping_add(add);
        }
        pixels.extend(row.chunks(channels).map(|pixel| [pixel[0], pixel[1], pixel[2]]));
        above = row;
    }
    (width, pixels)
}

/// The one of three neighbours that is nearest to the plane through them (PNG, 9.4).
fn paeth(left: u8, above: u8, corner: u8) -> u8 {
    let plane = i16::from(left) + i16::from(above) - i16::from(corner);
    let distance = |byte: u8| (plane - i16::from(byte)).abs();
    if distance(left) <= distance(above) && distance(left) <= distance(corner) {
        left
    } else if distance(above) <= distance(corner) {
        above
    } else {
        corner
    }
}
