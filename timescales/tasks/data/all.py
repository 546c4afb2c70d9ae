"""The list of all data sets."""

from timescales.tasks.data import cifar, glove, imdb, mnist, text

ALL = (mnist.CORPUS, cifar.CORPUS, imdb.CORPUS, glove.CORPUS, text.PTB, text.WIKITEXT2, text.WIKITEXT103, text.TEXT8)
CORPORA = {corpus.name: corpus for corpus in ALL}
