import unittest

from basket import total
from prices import with_discount


class Prices(unittest.TestCase):
    def test_a_discount_is_a_part_of_the_price(self) -> None:
        self.assertEqual(with_discount(2_000, 10), 1_800)

    def test_a_basket_has_one_discount(self) -> None:
        self.assertEqual(total([1_000, 3_000], 50), 2_000)
