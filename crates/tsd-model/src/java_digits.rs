//! The decimal digits that Java before version 19 chooses for a double.
//!
//! OpenTSDB prints every value with `Double.toString`. Its algorithm prints more digits than
//! necessary for powers of two, integers from 2^53 to 2^63, and decimals halfway between two
//! doubles. This module repeats its steps with integers of any length. They are slow, and only
//! needed where [`may_not_be_shortest`] holds.

use std::cmp::Ordering;

/// Bits of the significand, the hidden one included.
const SIGNIFICAND_BITS: i32 = 53;
/// Largest exponent of an integer that Java converts in a `long`.
const LONG_BITS: i32 = 62;

/// True if Java's digits may not be the fewest that identify `value`.
///
/// A decimal of at most 17 digits is halfway between two normal doubles only from 2^52 to about 10^40.
pub(crate) fn may_not_be_shortest(value: f64) -> bool {
    let magnitude = value.abs();
    let significand = value.to_bits() & ((1 << (SIGNIFICAND_BITS - 1)) - 1);
    (significand == 0 && magnitude != 0.0)
        || (4_503_599_627_370_496.0..1e41).contains(&magnitude)
        || (magnitude < f64::MIN_POSITIVE && magnitude != 0.0)
}

/// The digits of a finite double that is not 0, as ASCII without trailing zeros, and the position of the
/// point: `0.d₁d₂… · 10^position`. The sign is ignored.
pub(crate) fn java_digits(value: f64) -> (Vec<u8>, i32) {
    let bits = value.to_bits();
    let fraction = bits & ((1 << (SIGNIFICAND_BITS - 1)) - 1);
    let biased = ((bits >> (SIGNIFICAND_BITS - 1)) & 0x7FF) as i32;
    // The significand has `significant` bits, fewer for subnormal doubles.
    let (significand, exponent, significant) = if biased == 0 {
        let significant = 64 - fraction.leading_zeros() as i32;
        let shift = SIGNIFICAND_BITS - significant;
        (fraction << shift, 1 - shift - 1023, significant)
    } else {
        (fraction | 1 << (SIGNIFICAND_BITS - 1), biased - 1023, SIGNIFICAND_BITS)
    };
    let zeros = significand.trailing_zeros() as i32;
    let fraction_bits = SIGNIFICAND_BITS - zeros;
    // Bits to the right of the point.
    let tiny = (fraction_bits - exponent - 1).max(0);
    let (mut digits, position) = if tiny == 0 && exponent <= LONG_BITS {
        let shift = exponent - (SIGNIFICAND_BITS - 1);
        let integer = if shift >= 0 { significand << shift } else { significand >> -shift };
        integer_digits(integer, exponent - significant - 1)
    } else {
        generated_digits(significand >> zeros, fraction_bits, exponent, significant, tiny)
    };
    let length = digits.iter().rposition(|digit| *digit != b'0').map_or(1, |last| last + 1);
    digits.truncate(length);
    (digits, position)
}

/// Digits of an integer whose lowest `insignificant_bits` + 1 bits are unknown.
fn integer_digits(mut integer: u64, insignificant_bits: i32) -> (Vec<u8>, i32) {
    let mut dropped = 0;
    // Java's table has the decimal digits of 2^n - 1 that cannot be told apart, 0 for n < 2.
    if insignificant_bits > 1 {
        dropped = (1_u64 << insignificant_bits.min(63)).ilog10() as i32;
    }
    if dropped > 0 {
        let power = 10_u64.pow(dropped as u32);
        let residue = integer % power;
        integer /= power;
        if residue >= power / 2 {
            integer += 1;
        }
    }
    let digits = integer.to_string().into_bytes();
    let position = digits.len() as i32 + dropped;
    (digits, position)
}

/// Generates digits until the rest is less than half the distance to the next double.
///
/// With d = `significand` · 2^x: B/S is d scaled to one digit before the point, M/S half that distance.
fn generated_digits(
    significand: u64,
    fraction_bits: i32,
    exponent: i32,
    significant: i32,
    tiny: i32,
) -> (Vec<u8>, i32) {
    let mut position = estimated_exponent(significand, fraction_bits, exponent);
    let fives = (-position).max(0);
    let mut numerator_twos = fives + tiny + exponent;
    let scale_fives = position.max(0);
    let mut scale_twos = scale_fives + tiny;
    let mut half_twos = numerator_twos - significant;
    numerator_twos -= fraction_bits - 1;
    let common = numerator_twos.min(scale_twos);
    numerator_twos -= common;
    scale_twos -= common;
    half_twos -= common;
    // Below a power of two, doubles are half as far apart as above it.
    if fraction_bits == 1 {
        half_twos -= 1;
    }
    if half_twos < 0 {
        numerator_twos -= half_twos;
        scale_twos -= half_twos;
        half_twos = 0;
    }
    // Where these bits fit, Java computes with 64 bits and compares differently.
    let bits_of_numerator = fraction_bits + numerator_twos + bits_of_power_of_five(fives);
    let bits_of_tens = scale_twos + 1 + bits_of_power_of_five(scale_fives + 1);
    let in_long = bits_of_numerator < 64 && bits_of_tens < 64;

    let mut numerator = Natural::product(significand, fives, numerator_twos);
    let scale = Natural::product(1, scale_fives, scale_twos);
    let tens = scale.times(10);
    let mut half = Natural::product(1, fives, half_twos);
    let mut digits = Vec::with_capacity(20);
    let (mut low, mut high);
    let mut first = true;
    loop {
        let digit = numerator.remove_multiples(&scale);
        numerator = numerator.times(10);
        half = half.times(10);
        low = numerator.cmp(&half) == Ordering::Less;
        let above = numerator.plus(&half).cmp(&tens);
        high = if in_long { above == Ordering::Greater } else { above != Ordering::Less };
        if first && digit == 0 && !high {
            position -= 1;
        } else {
            digits.push(b'0' + digit);
        }
        // Scientific notation has two digits at least.
        if std::mem::take(&mut first) && !(-3..8).contains(&position) {
            continue;
        }
        if low || high {
            break;
        }
    }
    let round_up = high
        && (!low
            || match numerator.times(2).cmp(&tens) {
                Ordering::Less => false,
                Ordering::Equal => digits.last().is_some_and(|digit| digit % 2 == 1),
                Ordering::Greater => true,
            });
    position += 1;
    if round_up {
        position += increment(&mut digits);
    }
    (digits, position)
}

/// Adds one to the last digit; returns 1 if all digits were nines, so that the point moves.
fn increment(digits: &mut [u8]) -> i32 {
    for digit in digits.iter_mut().rev() {
        if *digit < b'9' {
            *digit += 1;
            return 0;
        }
        *digit = b'0';
    }
    if let Some(digit) = digits.first_mut() {
        *digit = b'1';
    }
    1
}

/// Java's estimate of the decimal exponent, which may be one too great.
#[expect(clippy::approx_constant, reason = "Java's constants, as it has them")]
fn estimated_exponent(significand: u64, fraction_bits: i32, exponent: i32) -> i32 {
    let fraction = significand as f64 / f64::from(fraction_bits - 1).exp2();
    let estimate = (fraction - 1.5) * 0.289_529_654
        + 0.176_091_259
        + f64::from(exponent) * 0.301_029_995_663_981;
    estimate.floor() as i32
}

/// Bits of 5^n, as in Java's table and estimate.
fn bits_of_power_of_five(n: i32) -> i32 {
    match u32::try_from(n) {
        Ok(0) => 0,
        Ok(n) if n < 27 => 5_u64.pow(n).ilog2() as i32 + 1,
        _ => n * 3,
    }
}

/// A natural number of any length, least significant digit (of 32 bits) first, without leading zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Natural(Vec<u32>);

impl Natural {
    /// `factor` · 5^`fives` · 2^`twos`.
    fn product(factor: u64, fives: i32, twos: i32) -> Self {
        let mut product = Self(vec![factor as u32, (factor >> 32) as u32]).trimmed();
        for _ in 0..fives {
            product = product.times(5);
        }
        for _ in 0..twos / 31 {
            product = product.times(1 << 31);
        }
        product.times(1 << (twos % 31))
    }

    fn trimmed(mut self) -> Self {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
        self
    }

    fn times(&self, factor: u32) -> Self {
        let mut carry = 0_u64;
        let mut product: Vec<u32> = Vec::with_capacity(self.0.len() + 1);
        for digit in &self.0 {
            carry += u64::from(*digit) * u64::from(factor);
            product.push(carry as u32);
            carry >>= 32;
        }
        product.push(carry as u32);
        Self(product).trimmed()
    }

    fn plus(&self, other: &Self) -> Self {
        let mut carry = 0_u64;
        let mut sum = Vec::with_capacity(self.0.len().max(other.0.len()) + 1);
        for at in 0..self.0.len().max(other.0.len()) {
            for digits in [&self.0, &other.0] {
                carry += u64::from(digits.get(at).copied().unwrap_or(0));
            }
            sum.push(carry as u32);
            carry >>= 32;
        }
        sum.push(carry as u32);
        Self(sum).trimmed()
    }

    fn cmp(&self, other: &Self) -> Ordering {
        let lengths = self.0.len().cmp(&other.0.len());
        lengths.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    /// Subtracts `other` as often as it fits, at most nine times; returns how often.
    fn remove_multiples(&mut self, other: &Self) -> u8 {
        let mut times = 0;
        while times < 9 && self.cmp(other) != Ordering::Less {
            let mut borrow = 0_i64;
            for (at, digit) in self.0.iter_mut().enumerate() {
                borrow += i64::from(*digit) - i64::from(other.0.get(at).copied().unwrap_or(0));
                *digit = borrow as u32;
                borrow >>= 32;
            }
            self.0 = std::mem::replace(self, Self(Vec::new())).trimmed().0;
            times += 1;
        }
        times
    }
}
