"""The tasks of the reasoning_gym library with their parameters and the rules that the library asserts.

The service lists and checks them without importing the library, which takes more than a second and imports
matplotlib and sympy. `python -m tests.reasoning_gym_table` generates this table, and a test compares it with
the installed version (0.1.25).

`composite` is left out, because problems are mixed by weight here. Parameters that name files, that JSON
cannot express (dates, classes), or that a run sets itself (`seed`, `size`) are also left out.
"""

import json
import re
from typing import Any, NamedTuple

_TABLE = """
ab: length=10 ; length>0
acre: train=1
advanced_geometry: min_coord=-10 max_coord=10 task_types=texts ; min_coord<max_coord
aiw: male_names=texts female_names=texts task_type_weights=numbers max_entities=6 ; max_entities>0
arc_1d: min_size=10 max_size=30 num_train=3 ; min_size>=8 max_size>=min_size num_train>0
arc_agi: use_train=true use_eval=true rotations=texts mirrors=texts use_color_permutation=true
    shuffle_example_order=true rotations_weights=numbers mirrors_weights=numbers
base_conversion: min_base=2 max_base=16 min_value=0 max_value=1000 ; 2<=min_base min_base<=36
    min_base<=max_base max_base<=36 min_value>=0 max_value>min_value
basic_arithmetic: min_terms=2 max_terms=6 min_digits=1 max_digits=4 operators=texts allow_parentheses=true
    allow_negation=true format_style=simple|natural whitespace=no_space|single|random ; min_terms>0
    max_terms>=min_terms min_digits>0 max_digits>=min_digits
bf: difficulty=1 ; difficulty>0 difficulty<4
binary_alternation: min_n=10 max_n=30 p_solvable=0.8 ; 1<=min_n min_n<=max_n 0<=p_solvable p_solvable<=1
binary_matrix: min_n=3 max_n=10 p_zero=0.25 ; 1<=min_n min_n<=max_n 0<p_zero p_zero<=1
bitwise_arithmetic: difficulty=2 ; 0<difficulty 10>=difficulty
boxnet: min_row_num=1 max_row_num=4 min_column_num=2 max_column_num=4 min_box_num=1 max_box_num=1
    colour_list=texts ; min_row_num>0 max_row_num>0 min_column_num>0 max_column_num>0 min_box_num>0
    max_box_num>0 min_box_num<=max_box_num
caesar_cipher: delimiter=text min_words=3 max_words=20 min_rotation=1 max_rotation=25 ; min_words>0
    max_words>=min_words 0<min_rotation min_rotation<=max_rotation max_rotation<26
calendar_arithmetic: year=2022 tasks=texts? offset_upper_bound=100 leap_year_range=200
chain_sum: min_terms=2 max_terms=6 min_digits=1 max_digits=4 allow_negation=false ; min_terms>0
    max_terms>=min_terms min_digits>0 max_digits>=min_digits
circuit_logic: min_terms=3 max_terms=5 min_inputs=2 max_inputs=4 neg_prob=0.3 allow_reuse=true ;
    1<=min_inputs min_inputs<=max_inputs 1<=min_terms min_terms<=max_terms 0.0<=neg_prob neg_prob<=1.0
codeio: input_prediction_probability=0.5 difficulty=int? ; 0.0<=input_prediction_probability
    input_prediction_probability<=1.0
coin_flip: min_trials=3 max_trials=15 allow_exact=true allow_at_least=true ; min_trials>0
    max_trials>=min_trials
color_cube_rotation: min_rotations=1 max_rotations=3 ; min_rotations>0 max_rotations>=min_rotations
complex_arithmetic: min_real=-10 max_real=10 min_imag=-10 max_imag=10 operations=texts
    operations_weights=numbers ; max_real>=min_real max_imag>=min_imag
count_bits: min_n=1 max_n=2147483647 ; 1<=min_n min_n<=max_n
count_primes: min_n=1 max_n=10000 ; 1<=min_n min_n<=max_n
countdown: min_numbers=4 max_numbers=6 min_value=1 max_value=100 min_target=100 max_target=999
    operators=texts shuffle=true ; min_numbers>1 max_numbers>=min_numbers min_value>0 max_value>=min_value
    min_target>0 max_target>=min_target
course_schedule: min_num_courses=5 max_num_courses=10 min_num_prerequisites=1 max_num_prerequisites=2
    min_cycle_length=3 max_cycle_length=5 p_solvable=0.5 ; 3<=min_num_courses
    min_num_courses<=max_num_courses 3<=min_cycle_length min_cycle_length<=max_cycle_length
    1<=min_num_prerequisites min_num_prerequisites<=max_num_prerequisites 0<=p_solvable p_solvable<=1
cryptarithm: min_words=2 max_words=3 allow_leading_zero=false ; 2<=min_words min_words<=max_words
decimal_arithmetic: min_num_decimal_places=3 max_num_decimal_places=3 min_terms=2 max_terms=6 precision=12
decimal_chain_sum: min_terms=2 max_terms=6 min_digits=1 max_digits=4 min_decimal_places=1
    max_decimal_places=4 allow_negation=false ; min_terms>0 max_terms>=min_terms min_digits>0
    max_digits>=min_digits min_decimal_places>=0 max_decimal_places>=min_decimal_places
dice: num_dice=4 max_dice_size=20 ; num_dice>=1 max_dice_size>=2
emoji_mystery: min_words_in_sentence=3 max_words_in_sentence=35 ; min_words_in_sentence>0
    max_words_in_sentence>=min_words_in_sentence
family_relationships: min_family_size=4 max_family_size=8 male_names=texts female_names=texts ;
    min_family_size>=3 max_family_size>=min_family_size
figlet_font: static_word=text? static_font=text? min_word_len=3 max_word_len=7 space_letters=true ;
    min_word_len>0 min_word_len<=max_word_len
fraction_simplification: min_value=1 max_value=1000 min_factor=1 max_factor=100 styles=texts ; min_value>0
    max_value>min_value min_factor>=1 max_factor>=min_factor
futoshiki: min_board_size=4 max_board_size=9 min_difficulty=0 max_difficulty=3 ; 4<=min_board_size
    min_board_size<=max_board_size 0<=min_difficulty min_difficulty<=max_difficulty
game_of_life: grid_size_x=10 grid_size_y=10 filled_cells_weights=0.1 filled_cells=10 simulation_steps=1 ;
    3<=grid_size_x grid_size_x<=999 3<=grid_size_y grid_size_y<=999 simulation_steps>=0
game_of_life_halting: grid_size_x=12 grid_size_y=12 difficulty=1 num_oscillators=5 max_simulation_steps=20
gcd: min_numbers=2 max_numbers=2 min_value=1 max_value=1000 ; min_numbers>=2 max_numbers>=min_numbers
    min_value>=1 max_value>min_value
graph_color: num_colors=3 min_num_vertices=10 max_num_vertices=10 edge_probability=0.1 ; edge_probability<1
group_anagrams: min_anagram_groups=2 max_anagram_groups=10 min_words_per_group=2 max_words_per_group=5 ;
    2<=min_anagram_groups min_anagram_groups<=max_anagram_groups 2<=min_words_per_group
    min_words_per_group<=max_words_per_group
gsm_symbolic: difficulty=1.0 ; 1.0<=difficulty difficulty<=1.0
intermediate_integration: problem_types=texts problem_type_weights=numbers linear_lower_bound=1
    linear_upper_bound=10 min_linear_degree=2 max_linear_degree=4 outer_constant_min=1 outer_constant_max=3
    min_poly_degree=1 max_poly_degree=3 symbols=texts operators=texts ; linear_lower_bound>0
    linear_upper_bound>=linear_lower_bound min_linear_degree>0 max_linear_degree>=min_linear_degree
    outer_constant_min>0 outer_constant_max>=outer_constant_min min_poly_degree>0
    max_poly_degree>=min_poly_degree
isomorphic_strings: min_string_length=2 max_string_length=10 p_solvable=0.5 ; 2<=min_string_length
    min_string_length<=max_string_length 0<=p_solvable p_solvable<=1
jugs: num_jugs=3 difficulty=10 ; num_jugs>2 difficulty>0 difficulty<200
kakurasu: min_rows=4 max_rows=5 min_cols=4 max_cols=5 p_ones=0.3 max_retries=1000 ; 3<=min_rows min_rows<=9
    3<=max_rows max_rows<=9 3<=max_cols max_cols<=9 min_rows<=max_rows min_cols<=max_cols 0<=p_ones
    p_ones<=1
knight_swap: min_nodes=6 max_nodes=9 min_pieces=2 max_pieces=2 min_steps=4 max_steps=20 max_attempts=100
    impossible_ratio=0.2 ; min_nodes>=6 max_nodes>=min_nodes min_pieces>=1 max_pieces>=min_pieces
    min_steps>=1 max_steps>=min_steps max_attempts>=1 0<=impossible_ratio impossible_ratio<=1
knights_knaves: n_people=2 depth_constraint=2 width_constraint=2 ; 1<=n_people 1<=depth_constraint
    1<=width_constraint
largest_island: min_rows=5 max_rows=10 min_cols=5 max_cols=10 min_num_islands=0 max_num_islands=5
    min_island_size=0 max_island_size=10 ; 1<=min_rows min_rows<=max_rows 1<=min_cols min_cols<=max_cols
    0<=min_num_islands min_num_islands<=max_num_islands 0<=min_island_size min_island_size<=max_island_size
lcm: min_numbers=2 max_numbers=2 min_value=1 max_value=100 ; min_numbers>=2 max_numbers>=min_numbers
    min_value>=1 max_value>min_value
leg_counting: min_animals=3 max_animals=10 min_instances=1 max_instances=15 ; min_animals>0
    max_animals>=min_animals min_instances>0 max_instances>=min_instances
letter_counting: min_words=5 max_words=15 ; min_words>0 max_words>=min_words
letter_jumble: min_word_len=1 max_word_len=64 min_words=3 max_words=20 min_corruption_level=0.1
    max_corruption_level=0.9 consecutive_words=true ; min_word_len>0 max_word_len>=min_word_len min_words>0
    max_words>=min_words 0<=min_corruption_level min_corruption_level<=1 0<=max_corruption_level
    max_corruption_level<=1 max_corruption_level>=min_corruption_level
list_functions:
mahjong_puzzle: min_num_rounds=10 max_num_rounds=50 ; 1<=min_num_rounds min_num_rounds<=max_num_rounds
manipulate_matrix: min_rows=2 min_cols=2 max_rows=10 max_cols=10 min_transforms=1 max_transforms=10
    w_rotate=1.0 w_hmirror=1.0 w_vmirror=1.0 w_dmirror=1.0 w_cmirror=1.0 w_map=1.0 w_crop=1.0
    w_remove_every_nth_row=1.0 w_remove_every_nth_col=1.0 w_zero_divisible=1.0 ; 2<=min_rows 2<=min_cols
    min_rows<=max_rows min_cols<=max_cols 1<=min_transforms min_transforms<=max_transforms
maze: min_dist=5 max_dist=10 min_grid_size=5 max_grid_size=10 ; min_dist>=1 max_dist>=min_dist
    min_grid_size>=2 max_grid_size>=min_grid_size
mini_sudoku: min_empty=8 max_empty=12 ; 0<=min_empty min_empty<=12 min_empty<=max_empty max_empty<=12
modulo_grid: size_x=20 size_y=20 max_divisor=20 max_target=20 max_holes=1 ; size_x>5 size_y>5 max_divisor>0
    max_target>0 max_holes>0
n_queens: n=8 min_remove=1 max_remove=7 ; 1<=min_remove min_remove<=max_remove max_remove<=n
needle_haystack: min_num_statements=10 max_num_statements=100 ; min_num_statements>0
    max_num_statements>=min_num_statements max_num_statements<168387000
number_filtering: min_numbers=3 max_numbers=10 min_decimals=0 max_decimals=4 min_value=-100.0
    max_value=100.0 ; min_numbers>0 max_numbers>=min_numbers min_decimals>=0 max_decimals>=min_decimals
    max_value>min_value
number_format: min_num_candidates=2 max_num_candidates=5 min_n=1000.0 max_n=1000000000.0 max_delta=10.0 ;
    2<=min_num_candidates min_num_candidates<=max_num_candidates 1<=min_n min_n<max_n 0<max_delta
number_sequence: min_terms=4 max_terms=8 min_value=-100 max_value=100 max_complexity=3 ; min_terms>=4
    max_terms>=min_terms max_value>min_value max_complexity>=1
number_sorting: min_numbers=3 max_numbers=10 min_decimals=0 max_decimals=2 min_value=-100.0 max_value=100.0
    ; min_numbers>0 min_numbers<=max_numbers min_decimals>=0 min_decimals<=max_decimals min_value<max_value
palindrome_generation: min_length=3 max_length=10 ; min_length>=1 max_length>=min_length
palindrome_partitioning: min_string_len=5 max_string_len=15 min_substring_palindrome_len=1
    max_substring_palindrome_len=5 ; 1<=min_string_len min_string_len<=max_string_len
    1<=min_substring_palindrome_len min_substring_palindrome_len<=max_substring_palindrome_len
    max_substring_palindrome_len<=max_string_len
path_star: degree=3 node_range=100000 min_path_length=3 max_path_length=5 reversed=false ; degree>=2
    min_path_length>=2 min_path_length<=max_path_length
polynomial_equations: min_terms=2 max_terms=4 min_value=1 max_value=100 min_degree=1 max_degree=3
    operators=texts ; min_terms>0 max_terms>=min_terms min_value>0 max_value>=min_value min_degree>=1
    max_degree>=min_degree
polynomial_multiplication: min_terms=2 max_terms=4 min_value=1 max_value=100 min_degree=0 max_degree=3
    min_polynomials=2 max_polynomials=3 variables=texts allow_cross_variable_product=false
    allow_multivariate_polynomials=false operators=texts ; min_terms>0 max_terms>=min_terms min_value>0
    max_value>=min_value min_degree>=0 max_degree>=min_degree min_polynomials>=2
    max_polynomials>=min_polynomials
pool_matrix: min_rows=2 max_rows=10 min_cols=2 max_cols=10 min_pool_size=1 max_pool_size=3 ; 2<=min_rows
    min_rows<=max_rows 2<=min_cols min_cols<=max_cols 1<=min_pool_size min_pool_size<=max_pool_size
power_function: min_base=-1000.0 max_base=1000.0 min_exponent=0 max_exponent=8
prime_factorization: min_value=2 max_value=1000 ; min_value>=2 max_value>=min_value
products: min_terms=2 max_terms=2 min_digits=1 max_digits=5 allow_negation=false ; min_terms>0
    max_terms>=min_terms min_digits>0 max_digits>=min_digits
propositional_logic: min_vars=2 max_vars=4 min_statements=2 max_statements=4 min_complexity=1
    max_complexity=3 ; min_vars>0 max_vars>=min_vars min_statements>0 max_statements>=min_statements
    min_complexity>0 max_complexity>=min_complexity
puzzle24: operators=texts min_value=1 max_value=10 ; min_value<=max_value min_value>=1 max_value<=10
quantum_lock: difficulty=10 ; difficulty>0
ransom_note: min_note_length=1 max_note_length=10 min_magazine_length=2 max_magazine_length=30
    p_solvable=0.5 ; 1<=min_note_length min_note_length<=max_note_length 2<=min_magazine_length
    min_magazine_length<=max_magazine_length max_note_length<max_magazine_length 0<=p_solvable p_solvable<=1
rearc: min_examples=3 max_examples=5 diff_lb=0 diff_ub=0 rng_difficulty_ranges=pairs
    rng_difficulty_weights=numbers pso_difficulty_ranges=pairs pso_difficulty_weights=numbers ;
    min_examples>0 min_examples<=max_examples diff_lb<=diff_ub
rectangle_count: max_rectangles=10 width=80 height=80 ; width>=10 height>=10
rotate_matrix: min_n=2 max_n=10 min_rotations=0 max_rotations=10 ; 2<=min_n min_n<=max_n 0<=min_rotations
    min_rotations<=max_rotations
rotten_oranges: min_n=10 max_n=30 p_oranges=0.85 p_rotten=0.1 ; 2<=min_n min_n<=max_n 0<p_oranges
    p_oranges<=1 0<p_rotten p_rotten<=1
rubiks_cube: min_scramble_steps=3 max_scramble_steps=10 cube_size=3 remove_ansi=true ; cube_size>1
    cube_size<7 min_scramble_steps>0 max_scramble_steps>=min_scramble_steps
rush_hour: min_moves=1 max_moves=50 ; min_moves>0 max_moves>=min_moves
self_reference: difficulty=5 ; 1<=difficulty difficulty<=10
sentence_reordering: min_words_in_sentence=3 max_words_in_sentence=20 ; min_words_in_sentence>0
    max_words_in_sentence>=min_words_in_sentence
shortest_path: min_rows=5 max_rows=8 min_cols=5 max_cols=8 p_blocked=0.4 ; 1<=min_rows min_rows<=max_rows
    1<=min_cols min_cols<=max_cols 0<=p_blocked p_blocked<=1
simple_equations: min_terms=2 max_terms=4 min_value=1 max_value=100 operators=texts
    operators_weights=numbers ; min_terms>0 max_terms>=min_terms min_value>0 max_value>=min_value
simple_geometry: min_sides=3 max_sides=6 min_angle=10 max_angle=170 ; min_sides>=3 max_sides>=min_sides
    0<min_angle min_angle<180 max_angle<=179 max_angle>=min_angle
simple_integration: min_terms=2 max_terms=5 min_degree=1 max_degree=10 min_bounds=1 max_bounds=10
    operators=texts symbols=texts ; min_bounds>0 max_bounds>=min_bounds min_terms>=0 max_terms>=min_terms
    min_degree>=-10 max_degree>=min_degree
sokoban: min_w=6 min_h=6 max_w=10 max_h=10 min_boxes=4 max_boxes=10 max_depth=80 ; 0<max_w max_w<=20 0<max_h
    max_h<=20 min_h>0 min_w>0 min_w<=max_w min_h<=max_h min_boxes<=max_boxes max_depth>1
spell_backward: min_word_len=3 max_word_len=10 ; min_word_len>0 max_word_len>=min_word_len
spiral_matrix: min_n=2 max_n=10 ; 2<=min_n min_n<=max_n
string_insertion: min_string_length=5 max_string_length=20 ; 5<=min_string_length
    min_string_length<=max_string_length
string_manipulation: min_string_length=5 max_string_length=20 min_num_rules=3 max_num_rules=8 ;
    5<=min_string_length min_string_length<=max_string_length 3<=min_num_rules min_num_rules<=max_num_rules
    max_num_rules<=20
string_splitting: min_initial_machines=0 max_initial_machines=5 max_iterations=1000 ;
    0<=min_initial_machines min_initial_machines<=max_initial_machines 0<max_iterations
string_synthesis: min_initial_blocks=0 max_initial_blocks=5 max_iterations=1000 ; 0<=min_initial_blocks
    min_initial_blocks<=max_initial_blocks 0<max_iterations
sudoku: min_empty=30 max_empty=50 ; 0<=min_empty min_empty<=64 min_empty<=max_empty max_empty<=64
survo: min_board_size=4 max_board_size=5 min_empty=3 max_empty=5 min_num=1 max_num=9 ; min_board_size>3
    max_board_size>=min_board_size min_empty>0 min_empty<=max_empty min_num>0 min_num<max_num
syllogism: allow_all=true allow_no=true allow_some=true allow_some_not=true invalid_ratio=0.3
    inversion_probability=0.3 ; 0.0<=invalid_ratio invalid_ratio<=1.0 0.0<=inversion_probability
    inversion_probability<=1.0
time_intervals: max_time_difference_seconds=86400 max_date_difference_days=100 task_types=texts ;
    max_time_difference_seconds>0 max_date_difference_days>0
tower_of_hanoi: min_disks=3 max_disks=7 min_pegs=3 max_pegs=4 visualize=false ; min_disks>=1
    max_disks>=min_disks min_pegs>=3 max_pegs>=min_pegs
tsumego: min_board_size=9 max_board_size=13 max_stones=15
word_ladder: min_word_length=4 max_word_length=4 min_chain_length=-1 max_chain_length=-1 ;
    min_word_length>=3 max_word_length>=min_word_length max_word_length<=5
word_sequence_reversal: min_words=3 max_words=8 ; min_words>0 max_words>=min_words
word_sorting: min_words=3 max_words=10 min_word_length=3 max_word_length=12 ; min_words>0
    min_words<=max_words min_word_length>0 min_word_length<=max_word_length
zebra_puzzles: num_people=4 num_characteristics=4 ; 2<=num_people num_people<=7 2<=num_characteristics
    num_characteristics<=7
"""
"""Lines of the form `task: parameter=default ... ; rule ...`. A word instead of a default is the type."""

TYPE_NAMES = {int: "int", float: "number", bool: "bool", str: "text"}


class Parameter(NamedTuple):
    """A parameter of a task."""

    type: str
    """Type: int, number, bool, text, texts, numbers or pairs, with ? if
    null is allowed, or `one|of|these`.
    """
    default: float | None
    """Default of the library if it is a number or a Boolean, or None."""


class Rule(NamedTuple):
    """A comparison that the task asserts, e.g. max_terms >= min_terms."""

    left_operand: str
    operator: str
    right_operand: str


class Task(NamedTuple):
    """The parameters and rules of a task."""

    parameters: dict[str, Parameter]
    rules: tuple[Rule, ...]


def _parse_tasks(text: str) -> dict[str, Task]:
    tasks = {}
    for line in text.strip().replace("\n    ", " ").splitlines():
        name, _, entry = line.partition(":")
        parameter_text, _, rules = entry.partition(" ; ")
        pairs = (assignment.split("=", 1) for assignment in parameter_text.split())
        parameters = {key: _parameter(value) for key, value in pairs}
        matches = (re.fullmatch(r"(.+?)(<=|>=|<|>)(.+)", rule) for rule in rules.split())
        tasks[name] = Task(parameters, tuple(Rule(*match.groups()) for match in matches if match))
    return tasks


def _parameter(text: str) -> Parameter:
    try:
        default: Any = json.loads(text)
    except json.JSONDecodeError:
        return Parameter(text, None)
    return Parameter(TYPE_NAMES[type(default)], default)


TASKS = _parse_tasks(_TABLE)
"""All tasks by name."""
