"""Generate names for runs: two friendly words that are easy to say and to remember."""

import random

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.storage.models import Run

ADJECTIVES = """
agile amber ample apt azure balanced bold brave breezy bright brisk calm careful cheerful clear clever
cobalt copper coral cosmic crisp curious daring deft eager early earnest eloquent emerald fabled fair
faithful fearless festive fleet fluent fresh friendly gallant gentle gilded glad gleaming golden graceful
grand great hardy hazel honest humble indigo ivory jade jolly jovial keen kind lasting light lively loyal
lucid lucky lunar maple marble mellow merry mighty mindful mint modest neat nimble noble olive opal patient
peaceful pearl pleasant polished precise prompt proud quick quiet radiant rapid ready robust ruby russet
saffron sage scarlet serene sharp silver sincere smooth snowy solar solid sound spirited splendid steady
sterling strong subtle sunny super swift tender thorough tidy topaz tranquil true trusty upbeat valiant
velvet vivid warm wise witty zesty
"""
ANIMALS = """
albatross alpaca antelope armadillo avocet badger bat bear beaver bee bison bluebird bobcat buffalo bunting
butterfly camel canary caribou cat cheetah chickadee chinchilla chipmunk condor cormorant cougar coyote
crane cricket curlew deer dingo dolphin dormouse dove dragonfly duck dunlin eagle egret elephant elk emu
ermine falcon ferret finch firefly flamingo fox gannet gazelle gecko gibbon giraffe goldfinch goose grouse
gull hare harrier hawk hedgehog heron hippo hoopoe horse hummingbird ibex ibis iguana impala jackdaw jaguar
jay kestrel kingfisher kite kiwi koala kudu ladybird lapwing lark lemur leopard linnet lion llama lynx
magpie manatee marlin marmot marten meerkat merlin mink mole mongoose moose moth narwhal newt nightingale
numbat nuthatch ocelot octopus okapi orca oriole osprey otter owl panda panther parrot partridge pelican
penguin petrel pheasant pipit platypus plover pony porcupine possum puffin puma quail quokka rabbit raccoon
raven reindeer robin salmon sandpiper seahorse seal skylark sparrow squirrel starling stoat stork swallow
swan swift tapir teal tern thrush tiger toucan trout turtle vole wagtail walrus wapiti warbler waxwing whale
wolf wombat woodpecker wren yak zebra
"""


def new_run_names(session: Session, count: int) -> list[str]:
    """Return `count` unused names; if the names are taken, numbers are added."""
    names: list[str] = []
    digits = 0
    while len(names) < count:
        candidates = {_random_name(digits) for _ in range((count - len(names)) * 2)} - set(names)
        used_names = set(session.scalars(select(Run.name).where(Run.name.in_(candidates))))
        names += list(candidates - used_names)[: count - len(names)]
        digits += 1
    return names


def _random_name(digits: int) -> str:
    base_name = f"{random.choice(ADJECTIVES.split())}-{random.choice(ANIMALS.split())}"
    return f"{base_name}-{random.randrange(10**digits)}" if digits else base_name
