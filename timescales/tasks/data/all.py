"""List all data sets."""

from timescales.tasks.data import cifar, glove, imdb, mnist, released, text

ALL = (mnist.CORPUS, cifar.CORPUS, imdb.CORPUS, glove.CORPUS, *text.WORDS.values(), text.TEXT8, released.CORPUS)
CORPORA = {corpus.name: corpus for corpus in ALL}
